use super::{
    Case, Config, Counting, Descriptor, Features, Node, RateLimit, Request, Response, Service, Status, Unit,
    matches, random_case, smallest,
};
use crate::random::Random;

const REFERENCE: Counting = Counting { counts_denied: true, joins_names: true, uses_strictest: false };
const ALL_OR_NOTHING: Counting = Counting { counts_denied: false, joins_names: true, uses_strictest: false };

/// Ten seconds before the end of an hour, which is not the last of its day.
const NOW: u64 = 1_700_002_790;

/// `key=value` or `key`, with a limit per hour.
fn node(name: &str, limit: u32) -> Node {
    Node { rate_limit: Some(per_hour(limit)), ..bare(name) }
}

/// `key=value` or `key`, without a rule.
fn bare(name: &str) -> Node {
    let (key, value) = name.split_once('=').unwrap_or((name, ""));
    Node { key: key.to_owned(), value: value.to_owned(), ..Node::default() }
}

fn per_hour(limit: u32) -> RateLimit {
    RateLimit { per_unit: Some((limit, Unit::Hour)), name: String::new(), replaces: Vec::new() }
}

fn unlimited(name: &str) -> Node {
    let rate_limit = RateLimit { per_unit: None, name: String::new(), replaces: Vec::new() };
    Node { rate_limit: Some(rate_limit), ..bare(name) }
}

fn named(mut node: Node, name: &str, replaces: &[&str]) -> Node {
    let limit = node.rate_limit.as_mut().unwrap();
    limit.name = name.to_owned();
    limit.replaces = replaces.iter().map(|name| (*name).to_owned()).collect();
    node
}

fn service(counting: Counting, descriptors: Vec<Node>) -> Service {
    Service::new(vec![Config { domain: "d".to_owned(), descriptors }], counting)
}

/// A descriptor from `key=value,key=value`.
fn descriptor(entries: &str) -> Descriptor {
    let pair = |entry: &str| {
        let (key, value) = entry.split_once('=').unwrap();
        (key.to_owned(), value.to_owned())
    };
    Descriptor { entries: entries.split(',').map(pair).collect(), ..Descriptor::default() }
}

fn own_hits(entries: &str, hits: u64) -> Descriptor {
    Descriptor { hits_addend: Some(hits), ..descriptor(entries) }
}

fn sent(entries: &str, limit: u32, unit: Unit) -> Descriptor {
    Descriptor { limit: Some((limit, unit)), ..descriptor(entries) }
}

fn ask_all(service: &mut Service, descriptors: Vec<Descriptor>) -> Response {
    service.answer(&Request { domain: "d".to_owned(), descriptors, hits_addend: 0 }, NOW)
}

fn ask(service: &mut Service, entries: &str) -> Status {
    ask_all(service, vec![descriptor(entries)]).statuses.remove(0)
}

/// The limit of the rule that applies.
fn limit(service: &mut Service, entries: &str) -> Option<u32> {
    ask(service, entries).current_limit.map(|limit| limit.requests_per_unit)
}

/// The codes of a response, `O`ver or `k` for OK, the overall code first, then what each descriptor has left.
fn codes(response: &Response) -> (String, Vec<u32>) {
    let code = |is_over| if is_over { 'O' } else { 'k' };
    let statuses = response.statuses.iter();
    let codes = std::iter::once(response.is_over).chain(statuses.clone().map(|status| status.is_over));
    (codes.map(code).collect(), statuses.map(|status| status.limit_remaining).collect())
}

#[test]
fn a_star_matches_any_run_of_characters() {
    for (pattern, text, is_match) in [
        ("a_*", "a_", true),
        ("a_*", "a_x_y", true),
        ("a_*", "b_x", false),
        ("a_x*y", "a_xy", true),
        ("a_x*y", "a_xyzy", true),
        ("a_x*y", "a_xyz", false),
        ("*", "", true),
        ("*_*x*", "a_bxc", true),
        ("*_*x*", "ax", false),
        ("a", "a", true),
        ("a", "ab", false),
    ] {
        assert_eq!(matches(pattern, text), is_match, "{pattern} {text}");
    }
}

#[test]
fn the_exact_name_goes_before_patterns_and_patterns_before_the_key() {
    let mut service = service(
        REFERENCE,
        vec![node("a", 1), node("a=x*", 2), node("a=*y", 3), node("a=xy", 4), bare("a=none")],
    );
    for (entries, expected) in [
        ("a=xy", Some(4)),
        ("a=xzy", Some(2)),
        ("a=zy", Some(3)),
        ("a=z", Some(1)),
        ("a=", Some(1)),
        ("a=none", None),
        ("b=x", None),
    ] {
        assert_eq!(limit(&mut service, entries), expected, "{entries}");
    }
}

#[test]
fn a_star_in_a_key_makes_a_pattern_of_key_and_value() {
    let mut service = service(REFERENCE, vec![node("a*", 1), node("*=x", 2), node("b_*", 3)]);
    for (entries, expected) in [("a=x", 1), ("ab=", 1), ("c=x", 2), ("b=x", 2), ("b=y", 3)] {
        assert_eq!(limit(&mut service, entries), Some(expected), "{entries}");
    }
    assert_eq!(limit(&mut service, "c=y"), None);
}

/// `key: a_b` and `key: a, value: b` are one name.
#[test]
fn names_are_joined_before_they_are_compared() {
    let mut service = service(REFERENCE, vec![node("a_b", 1)]);
    assert_eq!(limit(&mut service, "a=b"), Some(1));
    assert_eq!(limit(&mut service, "a_b=c"), Some(1));
    assert_eq!(limit(&mut service, "a=b_c"), None);
}

/// The exact name is kept although only the pattern leads on.
#[test]
fn there_is_no_way_back() {
    let exact = bare("a=x");
    let pattern = Node { descriptors: vec![node("b", 5)], ..bare("a=*") };
    let mut service = service(REFERENCE, vec![exact, pattern]);
    assert_eq!(limit(&mut service, "a=y,b=z"), Some(5));
    assert_eq!(limit(&mut service, "a=x,b=z"), None);
}

#[test]
fn a_rule_applies_to_as_many_entries_as_its_depth() {
    let mut service = service(REFERENCE, vec![Node { descriptors: vec![node("b", 2)], ..node("a", 1) }]);
    assert_eq!(limit(&mut service, "a=x"), Some(1));
    assert_eq!(limit(&mut service, "a=x,b=y"), Some(2));
    assert_eq!(limit(&mut service, "a=x,b=y,c=z"), None);
    assert_eq!(limit(&mut service, "a=x,c=z"), None);
    assert_eq!(limit(&mut service, "b=y"), None);
}

#[test]
fn descriptors_without_a_count_are_ok() {
    let mut service = service(REFERENCE, vec![unlimited("u"), bare("w")]);
    let uncounted = |limit_remaining| Status {
        is_over: false,
        current_limit: None,
        limit_remaining,
        duration_until_reset: None,
    };
    assert_eq!(ask(&mut service, "u=x"), uncounted(4_294_967_295));
    assert_eq!(ask(&mut service, "w=x"), uncounted(0));
    let elsewhere = vec![sent("u=x", 0, Unit::Day)];
    let elsewhere = Request { domain: "other".to_owned(), descriptors: elsewhere, hits_addend: 0 };
    assert_eq!(
        service.answer(&elsewhere, NOW).statuses,
        [uncounted(0)],
        "a limit is sent to an unknown domain"
    );
}

#[test]
fn denied_hits_count_and_windows_start_at_multiples_of_their_length() {
    let mut service = service(REFERENCE, vec![node("a", 3)]);
    let request = Request { domain: "d".to_owned(), descriptors: vec![descriptor("a=x")], hits_addend: 2 };
    let mut at = |now| {
        let mut response = service.answer(&request, now);
        let status = response.statuses.remove(0);
        assert_eq!(response.is_over, status.is_over);
        (status.is_over, status.limit_remaining, status.duration_until_reset)
    };
    assert_eq!(at(NOW), (false, 1, Some(10)));
    assert_eq!(at(NOW), (true, 0, Some(10)));
    assert_eq!(at(NOW + 9), (true, 0, Some(1)));
    assert_eq!(at(NOW + 10), (false, 1, Some(3600)), "the next window");
}

#[test]
fn each_value_has_a_count_unless_a_pattern_shares_it() {
    let shared = Node { share_threshold: true, ..node("s=x*", 5) };
    let deeper = Node { share_threshold: true, descriptors: vec![node("b", 5)], ..bare("t=x*") };
    let mut service = service(REFERENCE, vec![node("a", 5), node("p=x*", 5), shared, deeper]);
    let mut left = |entries: &str| ask(&mut service, entries).limit_remaining;
    assert_eq!(["a=x", "a=y", "a=x"].map(&mut left), [4, 4, 3]);
    assert_eq!(["p=x", "p=xy", "p=x"].map(&mut left), [4, 4, 3]);
    assert_eq!(["s=x", "s=xy", "s=x"].map(&mut left), [4, 3, 2]);
    assert_eq!(["t=x,b=1", "t=xy,b=1", "t=x,b=2"].map(&mut left), [4, 3, 4]);
}

/// A pattern stands for the value only, so that each key has its count.
#[test]
fn a_shared_pattern_does_not_join_keys() {
    let mut service = service(REFERENCE, vec![Node { share_threshold: true, ..node("a*=x*", 5) }]);
    let left = ["a1=x", "a1=xy", "a2=x"].map(|entries| ask(&mut service, entries).limit_remaining);
    assert_eq!(left, [4, 3, 4]);
}

#[test]
fn a_replaced_rule_is_as_if_unmatched_and_not_counted() {
    let rules = vec![
        named(node("small", 1), "small", &[]),
        named(node("large", 9), "large", &["small", "free"]),
        named(unlimited("free"), "free", &["large"]),
    ];
    let mut service = service(REFERENCE, rules);
    let both = || vec![descriptor("small=x"), descriptor("large=x")];
    assert_eq!(codes(&ask_all(&mut service, both())), ("kkk".to_owned(), vec![0, 8]));
    assert_eq!(ask_all(&mut service, both()).statuses[0].current_limit, None);
    assert_eq!(
        codes(&ask_all(&mut service, vec![descriptor("small=x")])),
        ("kk".to_owned(), vec![0]),
        "the first"
    );
    assert!(ask(&mut service, "small=x").is_over);
    // Both name each other. The unlimited rule stays unlimited, and the other is dropped.
    let mutual = ask_all(&mut service, vec![descriptor("free=x"), descriptor("large=x")]);
    assert_eq!(codes(&mutual), ("kkk".to_owned(), vec![u32::MAX, 0]));
    assert_eq!(mutual.statuses[1].current_limit, None);
}

#[test]
fn shadow_mode_counts_and_reports_ok() {
    let mut service = service(REFERENCE, vec![Node { shadow_mode: true, ..node("a", 1) }, node("b", 9)]);
    let both = || vec![descriptor("a=x"), descriptor("b=x")];
    assert_eq!(codes(&ask_all(&mut service, both())), ("kkk".to_owned(), vec![0, 8]));
    assert_eq!(codes(&ask_all(&mut service, both())), ("kkk".to_owned(), vec![0, 7]));
}

#[test]
fn a_request_passes_while_one_quota_has_room() {
    let quota = |name, limit| Node { quota_mode: true, ..node(name, limit) };
    let shadow = Node { shadow_mode: true, ..quota("s", 0) };
    let mut service = service(REFERENCE, vec![quota("q", 1), quota("r", 2), shadow, node("must", 3)]);
    let all = || ["q=", "r=", "must="].map(descriptor).to_vec();
    assert_eq!(codes(&ask_all(&mut service, all())).0, "kkkk");
    assert_eq!(codes(&ask_all(&mut service, all())).0, "kOkk");
    assert_eq!(codes(&ask_all(&mut service, all())).0, "OOOk", "all quotas are over");
    assert_eq!(
        codes(&ask_all(&mut service, ["q=", "s="].map(descriptor).to_vec())).0,
        "kOk",
        "a shadow quota passes"
    );
    assert_eq!(
        codes(&ask_all(&mut service, ["must=", "s="].map(descriptor).to_vec())).0,
        "OOk",
        "the fourth"
    );
}

/// 0 adds nothing and compares what is there. More is counted in full.
#[test]
fn own_hits_go_before_those_of_the_request() {
    let mut service = service(REFERENCE, vec![node("a", 3)]);
    let mut hit = |hits| codes(&ask_all(&mut service, vec![own_hits("a=x", hits)]));
    assert_eq!(hit(0), ("kk".to_owned(), vec![3]));
    assert_eq!(hit(3), ("kk".to_owned(), vec![0]));
    assert_eq!(hit(0), ("kk".to_owned(), vec![0]), "at the limit");
    assert_eq!(hit(1), ("OO".to_owned(), vec![0]));
    assert_eq!(hit(0), ("OO".to_owned(), vec![0]), "above the limit");
}

#[test]
fn one_counter_twice_in_a_request_is_counted_in_order() {
    let mut service = service(REFERENCE, vec![node("a", 3)]);
    let twice = || vec![descriptor("a=x"), own_hits("a=x", 1)];
    assert_eq!(codes(&ask_all(&mut service, twice())), ("kkk".to_owned(), vec![2, 1]));
    assert_eq!(codes(&ask_all(&mut service, twice())), ("OkO".to_owned(), vec![0, 0]));
}

#[test]
fn a_sent_limit_is_used_in_place_of_the_rule() {
    let shadow = named(Node { shadow_mode: true, ..node("a", 1) }, "n", &[]);
    let mut service = service(REFERENCE, vec![shadow, named(node("b", 9), "", &["n"])]);
    let response = ask_all(&mut service, vec![sent("a=x", 0, Unit::Year), descriptor("b=x")]);
    assert_eq!(codes(&response), ("OOk".to_owned(), vec![0, 8]), "neither in shadow nor replaced");
    let limit = response.statuses[0].current_limit.clone().unwrap();
    assert_eq!((limit.requests_per_unit, limit.unit, limit.name.as_str()), (0, Unit::Year, ""));
}

/// Three ways in which the reference gives two counters one name.
#[test]
fn counters_of_one_name_are_one_counter_in_the_reference_only() {
    let left = |joins_names, now, first: Descriptor, then: Descriptor| {
        let counting = Counting { joins_names, ..REFERENCE };
        let mut service = service(counting, vec![node("a", 5), node("a_b", 5)]);
        let mut ask = |descriptor| {
            let request = Request { domain: "d".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
            service.answer(&request, now).statuses[0].limit_remaining
        };
        ask(first);
        ask(then)
    };
    let midnight = NOW - NOW % 86_400;
    for (now, first, then) in [
        (NOW, descriptor("a=b_c"), descriptor("a_b=c")),
        (NOW, descriptor("a=x"), sent("a=x", 5, Unit::Hour)),
        (midnight, sent("a=x", 5, Unit::Day), sent("a=x", 5, Unit::Minute)),
    ] {
        assert_eq!(left(true, now, first.clone(), then.clone()), 3, "{first:?} {then:?}");
        assert_eq!(left(false, now, first.clone(), then.clone()), 4, "{first:?} {then:?}");
    }
}

#[test]
fn all_or_nothing_charges_nothing_for_a_denied_request() {
    let quota = |name, limit| Node { quota_mode: true, ..node(name, limit) };
    let shadow = Node { shadow_mode: true, ..node("s", 2) };
    let mut service =
        service(ALL_OR_NOTHING, vec![node("a", 1), node("b", 9), quota("q", 0), quota("r", 9), shadow]);
    let mut ask =
        |names: &[&str]| codes(&ask_all(&mut service, names.iter().map(|name| descriptor(name)).collect()));
    assert_eq!(ask(&["a=", "b="]), ("kkk".to_owned(), vec![0, 8]));
    assert_eq!(ask(&["a=", "b="]), ("OOk".to_owned(), vec![0, 8]));
    assert_eq!(ask(&["q=", "r="]), ("kOk".to_owned(), vec![0, 8]), "a quota with room is charged");
    assert_eq!(ask(&["a=", "s="]), ("OOk".to_owned(), vec![0, 1]), "a rule in shadow mode is alone");
    assert_eq!(ask(&["s=", "s=", "s="]), ("kkkk".to_owned(), vec![0, 0, 0]));
}

#[test]
fn all_or_nothing_charges_own_hits_in_any_case() {
    let mut service = service(ALL_OR_NOTHING, vec![node("a", 3), node("b", 9)]);
    let mut hit = |hits| codes(&ask_all(&mut service, vec![own_hits("a=x", hits), descriptor("b=x")]));
    assert_eq!(hit(2), ("kkk".to_owned(), vec![1, 8]));
    assert_eq!(hit(2), ("OOk".to_owned(), vec![0, 8]), "counted, and the other is not");
    assert_eq!(hit(0), ("OOk".to_owned(), vec![0, 8]));
}

/// With room for everything, nothing is denied, and both ways of counting are the same.
#[test]
fn ways_of_counting_differ_only_where_something_is_over() {
    let mut random = Random::new(3);
    let mut differing = 0;
    for _ in 0..1000 {
        let case = random_case(&mut random, "d", Features::ALL);
        let mut services =
            [REFERENCE, ALL_OR_NOTHING].map(|counting| Service::new(vec![case.config.clone()], counting));
        let mut has_been_full = false;
        for (at, request) in &case.requests {
            let now = at / 1_000_000_000;
            let [reference, other] = &mut services;
            let (reference, other) = (reference.answer(request, now), other.answer(request, now));
            let is_full = |status: &Status| status.current_limit.is_some() && status.limit_remaining == 0;
            has_been_full |= reference.statuses.iter().any(is_full);
            if reference != other {
                differing += 1;
                assert!(has_been_full, "{case:?}");
                break;
            }
        }
    }
    assert!((100..900).contains(&differing), "{differing}");
}

/// Random cases reach what they are for.
#[test]
fn random_cases_meet_every_kind_of_answer() {
    let mut random = Random::new(4);
    let mut kinds = std::collections::BTreeSet::new();
    for _ in 0..300 {
        let case = random_case(&mut random, "d", Features::ALL);
        let mut service = Service::new(vec![case.config.clone()], REFERENCE);
        for (at, request) in &case.requests {
            let response = service.answer(request, at / 1_000_000_000);
            for status in &response.statuses {
                let has_limit = status.current_limit.is_some();
                kinds.insert((response.is_over, status.is_over, has_limit, status.limit_remaining.min(1)));
            }
        }
    }
    let expected = [
        (false, false, false, 0), // no rule
        (false, false, false, 1), // unlimited
        (false, false, true, 0),
        (false, false, true, 1),
        (false, true, true, 0), // a quota
        (true, false, false, 0),
        (true, false, false, 1),
        (true, false, true, 0),
        (true, false, true, 1),
        (true, true, true, 0),
    ];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn the_smallest_case_keeps_what_makes_the_difference_and_nothing_else() {
    let is_met = |case: &Case| {
        let mut service = Service::new(vec![case.config.clone()], REFERENCE);
        let mut answers =
            case.requests.iter().map(|(at, request)| service.answer(request, at / 1_000_000_000));
        answers.any(|answer| answer.is_over)
    };
    let mut random = Random::new(5);
    let mut sizes = Vec::new();
    while sizes.len() < 50 {
        let case = random_case(&mut random, "d", Features { sent_limits: false, ..Features::ALL });
        if is_met(&case) {
            let smallest = smallest(&case, is_met);
            assert!(is_met(&smallest));
            assert_eq!(smallest.config.descriptors.len(), 1, "{smallest:?}");
            assert!(smallest.requests.iter().all(|(at, _)| *at == 0), "{smallest:?}");
            sizes.push(smallest.requests.len());
        }
    }
    assert!(sizes.iter().all(|size| (1..=6).contains(size)), "{sizes:?}");
}

#[test]
fn files_and_messages_are_written_as_the_reference_reads_them() {
    let inner = Node { share_threshold: true, ..named(node("b=x*", 2), "n", &["m"]) };
    let outer = Node { shadow_mode: true, descriptors: vec![inner], ..bare("a") };
    let config = Config { domain: "d".to_owned(), descriptors: vec![outer, unlimited("u")] };
    let expected = "\
domain: \"d\"
descriptors:
  - key: \"a\"
    shadow_mode: true
    descriptors:
      - key: \"b\"
        value: \"x*\"
        rate_limit: { unit: hour, requests_per_unit: 2, name: \"n\", replaces: [{ name: \"m\" }] }
        share_threshold: true
  - key: \"u\"
    rate_limit: { unlimited: true }
";
    assert_eq!(config.yaml(), expected);
    let descriptors = vec![own_hits("a=x", 0), sent("b=", 7, Unit::Day)];
    let request = Request { domain: "d".to_owned(), descriptors, hits_addend: 2 };
    let expected = r#"{"domain":"d","hits_addend":2,"descriptors":[{"entries":[{"key":"a","value":"x"}],"hits_addend":"0"},{"entries":[{"key":"b","value":""}],"limit":{"requests_per_unit":7,"unit":"DAY"}}]}"#;
    assert_eq!(request.json(), expected);
}
