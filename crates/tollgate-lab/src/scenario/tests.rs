use super::*;

fn all(scenario: &Scenario) -> Vec<Event> {
    scenario.events().collect()
}

#[test]
fn every_scenario_is_in_order_the_same_each_time_and_of_its_clients() {
    for (name, _) in BUILT_IN {
        let scenario = built_in(name).unwrap();
        let events = all(&scenario);
        assert!(events.is_sorted_by_key(|event| event.at), "{name}");
        assert!(events.iter().all(|event| event.at < scenario.duration), "{name}");
        assert_eq!(events, all(&scenario), "{name}");
        let clients: std::collections::HashSet<u32> = events.iter().map(|event| event.client).collect();
        assert_eq!(clients.len() as u64, scenario.clients(), "{name}");
        assert_eq!(scenario.ranges().last().unwrap().1.end as u64, scenario.clients(), "{name}");
    }
}

#[test]
fn the_boundary_attack_is_as_it_is_told() {
    let events = all(&built_in("boundary-attack").unwrap());
    let between = |from: u64, to: u64| {
        let second = 1_000_000_000;
        events.iter().filter(|event| (from * second..to * second).contains(&event.at)).count()
    };
    assert_eq!([between(0, 59), between(59, 60), between(60, 61), between(61, 180)], [0, 100, 100, 1190]);
}

#[test]
fn random_clients_ask_as_often_as_they_should() {
    let scenario = built_in("steady").unwrap();
    let events = all(&scenario);
    let expected: f64 = 100.0 * 0.9 * 600.0;
    assert!((events.len() as f64 - expected).abs() < 4.0 * expected.sqrt(), "{}", events.len());
}
