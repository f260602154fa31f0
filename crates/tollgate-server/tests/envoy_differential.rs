//! Random files of envoyproxy/ratelimit served by the real binary, beside an independent model of it: whole answers of `POST /json`.
//!
//! `tollgate-policy` has the same comparison without the service, with more cases, windows that end, and one test per feature.

use std::process::Command;

use serde_json::Value;
use tollgate_testkit::oracle::envoy::{
    Case, Counting, CurrentLimit, Features, Response, Service as Model, Status, Unit, random_case, smallest,
};
use tollgate_testkit::real_time::unix_seconds;
use tollgate_testkit::{Random, effort};

use crate::service::{Directory, Service, TOLLGATE, json_of};

/// An answer, and the seconds of Unix time before and after it.
struct Timed {
    response: Response,
    before: u64,
    after: u64,
}

/// Windows of a day at least.
const ALL: Features = Features { time: false, ..Features::ALL };

/// Without what few files and requests have.
const COMMON: Features = Features {
    unlimited: false,
    quota_mode: false,
    special_keys: false,
    own_hits: false,
    sent_limits: false,
    same_counter_twice: false,
    ..ALL
};

#[test]
fn the_service_answers_for_common_rules_as_the_reference() {
    compare(1, true, COMMON);
}

#[test]
fn the_service_answers_for_every_feature_as_the_reference() {
    compare(2, true, ALL);
}

#[test]
fn the_service_answers_for_every_feature_as_the_model_that_counts_all_or_nothing() {
    compare(3, false, ALL);
}

/// Compares the answers to random cases, each with a domain of its own in one process.
fn compare(seed: u64, counts_denied: bool, features: Features) {
    let mut random = Random::new(seed);
    let cases: Vec<Case> =
        (0..300 * effort()).map(|i| random_case(&mut random, &format!("d{i}"), features)).collect();
    let differing = differing(&cases, counts_denied);
    let Some(first) = differing.first() else { return };
    let is_different = |case: &Case| !self::differing(std::slice::from_ref(case), counts_denied).is_empty();
    let (count, of) = (differing.len(), cases.len());
    // A case may differ only beside the other domains.
    let case = if is_different(first) { smallest(first, is_different) } else { (*first).clone() };
    let shown = shown(&case, counts_denied);
    panic!("{count} of {of} cases differ (seed {seed}, counts_denied {counts_denied}). The first:\n{shown}");
}

/// The cases whose answers are not the model's.
fn differing(cases: &[Case], counts_denied: bool) -> Vec<&Case> {
    let answers = answers(cases, counts_denied);
    let is_different = |(case, answers): &(&Case, Vec<Timed>)| {
        answers.iter().zip(expected(case, answers, counts_denied)).any(|(ours, model)| !is_same(ours, &model))
    };
    cases.iter().zip(answers).filter(is_different).map(|(case, _)| case).collect()
}

/// The model's answers at the time before each answer.
fn expected(case: &Case, answers: &[Timed], counts_denied: bool) -> Vec<Response> {
    let counting = Counting { counts_denied, joins_names: false, uses_strictest: true };
    let mut model = Model::new(vec![case.config.clone()], counting);
    let requests = case.requests.iter().zip(answers);
    requests.map(|((_, request), timed)| model.answer(request, timed.before)).collect()
}

/// Whether an answer is the model's, at a second between the one before it and the one after it.
fn is_same(ours: &Timed, model: &Response) -> bool {
    (0..=ours.after - ours.before).any(|passed| {
        let mut model = model.clone();
        for status in &mut model.statuses {
            status.duration_until_reset = status.duration_until_reset.map(|reset| reset - passed);
        }
        model == ours.response
    })
}

/// What the service answers. It is done again if a day ended meanwhile.
fn answers(cases: &[Case], counts_denied: bool) -> Vec<Vec<Timed>> {
    loop {
        let started = unix_seconds();
        let service = serve(cases, counts_denied);
        let mut client = service.connect();
        let mut ask = |case: &Case| {
            let asked = case.requests.iter().map(|(_, request)| {
                let before = unix_seconds();
                let answer = client.0.send("POST", "/json", &[], &request.json());
                let response = response(&json_of(&answer));
                assert_eq!(answer.status, if response.is_over { 429 } else { 200 }, "{answer:?}");
                Timed { response, before, after: unix_seconds() }
            });
            asked.collect()
        };
        let answers = cases.iter().map(&mut ask).collect();
        if started / 86_400 == unix_seconds() / 86_400 {
            return answers;
        }
    }
}

fn serve(cases: &[Case], counts_denied: bool) -> Service {
    let directory = Directory::new();
    let folder = directory.path("config");
    std::fs::create_dir(&folder).unwrap();
    for Case { config, .. } in cases {
        std::fs::write(folder.join(format!("{}.yaml", config.domain)), config.yaml()).unwrap();
    }
    let mut command = Command::new(TOLLGATE);
    command.args(["serve", "--listen", "127.0.0.1:0", "--envoy-config"]).arg(&folder);
    if counts_denied {
        command.arg("--count-denied");
    }
    Service::run(directory, &mut command)
}

/// A response in the JSON of Protocol Buffers, in which what is 0 or empty is left out.
fn response(json: &Value) -> Response {
    let is_over = |json: &Value, name: &str| match json[name].as_str() {
        Some("OK") => false,
        Some("OVER_LIMIT") => true,
        _ => panic!("no code: {json}"),
    };
    let number = |json: &Value| u32::try_from(json.as_u64().unwrap_or_default()).unwrap();
    let status = |json: &Value| Status {
        is_over: is_over(json, "code"),
        current_limit: json["currentLimit"].as_object().map(|_| {
            let json = &json["currentLimit"];
            let unit = Unit::ALL.into_iter().find(|unit| json["unit"] == unit.name());
            CurrentLimit {
                requests_per_unit: number(&json["requestsPerUnit"]),
                unit: unit.unwrap_or_else(|| panic!("no unit: {json}")),
                name: json["name"].as_str().unwrap_or_default().to_owned(),
            }
        }),
        limit_remaining: number(&json["limitRemaining"]),
        duration_until_reset: json["durationUntilReset"]
            .as_str()
            .map(|text| text.strip_suffix('s').unwrap().parse().unwrap()),
    };
    Response {
        is_over: is_over(json, "overallCode"),
        statuses: json["statuses"].as_array().unwrap().iter().map(status).collect(),
    }
}

fn shown(case: &Case, counts_denied: bool) -> String {
    let mut text = case.config.yaml();
    let answers = answers(std::slice::from_ref(case), counts_denied).remove(0);
    let expected = expected(case, &answers, counts_denied);
    for (((_, request), ours), model) in case.requests.iter().zip(&answers).zip(&expected) {
        text += &format!("{}\n", request.json());
        if !is_same(ours, model) {
            text += &format!("  ours  {:?}\n  model {model:?}\n", ours.response);
        }
    }
    text
}
