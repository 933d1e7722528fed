//! Results have the form that is published.

use std::ops::ControlFlow;
use std::time::Duration;

use remanent_bench::machine::Machine;
use remanent_bench::plan::Plan;
use remanent_bench::run::{self, Beginning};
use serde_json::{Value, json};

const SCHEMA: &str = include_str!("../../../docs/src/bench-results.schema.json");

/// What of a value a schema does not allow. Fields that it does not name are refused too, so that none is forgotten there.
fn differences(value: &Value, schema: &Value, root: &Value, at: &str) -> Vec<String> {
    if let Some(name) = schema["$ref"].as_str() {
        return differences(value, &root["$defs"][name.trim_start_matches("#/$defs/")], root, at);
    }
    let mut found = Vec::new();
    let is = |kind: &str| match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "integer" => value.is_u64() || value.is_i64(),
        "number" => value.is_number(),
        kind => panic!("{at}: this test knows no type {kind}"),
    };
    let kinds = match &schema["type"] {
        Value::Null => Vec::new(),
        Value::Array(kinds) => kinds.clone(),
        kind => vec![kind.clone()],
    };
    if !kinds.is_empty() && !kinds.iter().any(|kind| is(kind.as_str().unwrap())) {
        found.push(format!("{at} is no {kinds:?}: {value}"));
    }
    if schema["enum"].as_array().is_some_and(|allowed| !allowed.contains(value))
        || !schema["const"].is_null() && schema["const"] != *value
    {
        found.push(format!("{at} cannot be {value}"));
    }
    for required in schema["required"].as_array().into_iter().flatten() {
        if value.get(required.as_str().unwrap()).is_none() {
            found.push(format!("{at} has no {required}"));
        }
    }
    for (name, field) in value.as_object().into_iter().flatten() {
        let known = schema["properties"].get(name).or_else(|| schema.get("additionalProperties"));
        match known {
            Some(schema) => found.extend(differences(field, schema, root, &format!("{at}.{name}"))),
            None => found.push(format!("{at}.{name} is not in the schema")),
        }
    }
    for (number, item) in value.as_array().into_iter().flatten().enumerate() {
        found.extend(differences(item, &schema["items"], root, &format!("{at}[{number}]")));
    }
    found
}

#[test]
fn results_have_the_published_form() {
    let folder = tempfile::tempdir().unwrap();
    let plan = "cells:\n- {measure: load, size: 16Ki, chains: '1:*2:4'}\n- {measure: latency, flush: all, size: 64Ki}\n\
        - {measure: reload}\n- {measure: bandwidth, size: 1Mi, threads: 2}\n- {measure: iops, memory: 'model:ddr4'}\n\
        rounds: 5\nprecision: 99%\nsample: 1ms\nfigures:\n- {title: t, measure: load, y: latency, x: chains, where: {size: 16Ki}, \
        published: [{what: w, value: 1.5, source: s}]}";
    let plan = Plan::parse("plan.yaml", plan).unwrap();
    if let Err(error) = Machine::this().check_clock() {
        println!("not run: {error}");
        return;
    }
    let results = run::run(&plan, folder.path(), Beginning::New { seed: 1 }, true, |progress| {
        assert!(progress.left <= Duration::from_nanos(plan.enough.budget_ns) && progress.finished <= progress.cells);
        ControlFlow::Continue(())
    })
    .unwrap();
    let schema: Value = serde_json::from_str(SCHEMA).unwrap();
    let value = serde_json::to_value(&results).unwrap();
    assert_eq!(differences(&value, &schema, &schema, "results"), [""; 0]);
    assert!(!results.findings.is_empty() && results.cells.iter().any(|cell| !cell.percentiles_ns.is_empty()));
    assert!(results.cells.iter().all(|cell| cell.percentiles_ns.keys().eq(cell.percentiles_ticks.keys())));
    let again = serde_json::from_value(value.clone()).unwrap();
    assert_eq!(results, again);
    // The test can fail.
    let mut other = value.clone();
    other["cells"][0]["status"] = json!("fine");
    other["machine"]["speed"] = json!(1);
    other.as_object_mut().unwrap().remove("plan");
    assert_eq!(differences(&other, &schema, &schema, "results").len(), 3);
}
