//! Every case of the shared vectors, as `ol conform` asks them, without Python.

use std::fs;
use std::path::PathBuf;

use tinyllm_port::answers::answer;
use tinyllm_port::json::Json;

/// Further apart than this no two libraries' exp and log are.
const MAX_ULPS: f64 = 8.0;

fn section(name: &str) -> Json {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let text = fs::read_to_string(folder.join(format!("{name}.json"))).expect("the shared vectors");
    Json::parse(&text).expect("JSON")
}

/// Equal, where a float that goes through exp or log (`how` is not "exact") may be up to `ulps` off.
fn agree(expected: &Json, got: &Json, how: &str, ulps: f64) -> bool {
    match (expected, got) {
        (Json::List(a), Json::List(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| agree(a, b, how, ulps)),
        (Json::Float(a), Json::Float(b)) if how != "exact" => {
            let least = if how == "logprob" { 1.0 } else { f64::MIN_POSITIVE };
            (a - b).abs() <= ulps * f64::EPSILON * a.abs().max(b.abs()).max(least)
        }
        _ => expected == got,
    }
}

fn hold(name: &str, ulps: f64) {
    let file = section(name);
    let cases = file.get("cases").list();
    assert!(!cases.is_empty());
    for case in cases {
        let Json::Object(keys) = file.get("answers") else { panic!("answers is an object") };
        let answered = answer(name, case);
        for (key, how) in keys {
            let (expected, got) = (case.get(key), answered.get(key));
            assert!(
                agree(expected, got, how.list()[0].text(), ulps),
                "{name}, {}: {key} must be {expected}, but is {got}\nthe rule: {}",
                case.get("name"),
                file.get("rules").get(case.get("rule").text()),
            );
        }
    }
}

/// 0 where this platform's exp and log give the bits of the files; only elsewhere may anything differ.
fn allowed() -> f64 {
    let file = section("exp_log");
    let same = file.get("cases").list().iter().all(|case| {
        let answered = answer("exp_log", case);
        ["exp", "log"].iter().all(|key| case.get(key) == answered.get(key))
    });
    if same {
        0.0
    } else {
        eprintln!(
            "exp and log of this platform are not those that wrote the vectors: up to {MAX_ULPS} ulps may differ"
        );
        MAX_ULPS
    }
}

#[test]
fn the_platforms_exp_and_log_are_those_of_the_files_or_nearly() {
    hold("exp_log", MAX_ULPS);
}

#[test]
fn the_generator_draws_the_same() {
    hold("generator", 0.0);
}

#[test]
fn uniforms_become_the_same_outcomes() {
    hold("categorical", 0.0);
    hold("rejection", 0.0);
}

#[test]
fn logits_become_the_same_tokens() {
    hold("sampler", allowed());
}

#[test]
fn drafts_propose_the_same() {
    hold("lookup", 0.0);
    hold("context_ngram", 0.0);
    hold("ngram_draft", allowed());
}

#[test]
fn verification_emits_the_same_with_as_many_draws() {
    hold("verification", allowed());
}

#[test]
fn whole_requests_go_the_same_way() {
    hold("generation", allowed());
}
