//! The reader and the writer of JSON.

use tinyllm_port::json::Json;

#[test]
fn what_is_written_reads_back() {
    for text in [r#"{"a":[1,-2,0.1,1e-7,5.0],"b":null,"c":[true,false,"-inf"],"d":{}}"#, r#"["\"\\\u0001é"]"#, "[]"] {
        assert_eq!(Json::parse(text).unwrap().to_string(), text);
    }
    assert_eq!(Json::parse("\" \\u00e9\\n\"").unwrap().text(), " é\n");
    let exact = 0.1 + 0.2;
    assert_eq!(Json::parse(&Json::from(exact).to_string()).unwrap().float(), exact);
    assert_eq!(Json::from(f64::NEG_INFINITY).float(), f64::NEG_INFINITY);
}

#[test]
fn what_is_no_json_is_refused() {
    for text in ["", "{", "[1", "[1 2]", "{\"a\" 1}", "\"a", "nul", "1 2", "-", "[,]"] {
        assert!(Json::parse(text).is_err(), "{text}");
    }
}
