//! Answers the cases of the shared vectors: one JSON object a line in, one a line out. `ol conform` drives it.

use std::io::{self, BufRead, Write};

use tinyllm_port::answers::answer;
use tinyllm_port::json::Json;

fn main() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let case = Json::parse(&line?).map_err(io::Error::other)?;
        let Json::Object(mut pairs) = answer(case.get("section").text(), &case) else {
            unreachable!("every answer is an object")
        };
        pairs.push(("id".to_string(), case.get("id").clone()));
        writeln!(out, "{}", Json::Object(pairs))?;
    }
    Ok(())
}
