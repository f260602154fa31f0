use std::net::Ipv4Addr;

use super::*;

const MARKS: AdaptiveRates =
    AdaptiveRates { high: Duration::from_millis(20), low: Duration::from_millis(10), floor: 100 };

/// The load of an interval in which requests waited for so many milliseconds, and so many of so many answers were errors.
fn load(waits: impl IntoIterator<Item = u64>, (errors, answers): (u64, u64)) -> Load {
    let pressure = Pressure::new();
    let _ = pressure.tell(MARKS);
    waits.into_iter().for_each(|ms| pressure.waited(Nanos::new(ms * 1_000_000)));
    let client = pressure.client(Some("acme"), Ipv4Addr::LOCALHOST.into());
    (0..answers).for_each(|answer| pressure.answered(client, answer < errors));
    pressure.tell(MARKS)
}

#[test]
fn the_ninth_of_ten_waits_says_how_loaded_it_is() {
    let calm = (0, 100);
    assert_eq!(load([], (0, 0)), Load::Low, "nobody came");
    assert_eq!(load([0; 100], calm), Load::Low);
    assert_eq!(load((0..100).map(|i| if i < 10 { 1000 } else { 0 }), calm), Load::Low, "one of ten may wait");
    assert_eq!(load((0..100).map(|i| if i < 11 { 15 } else { 0 }), calm), Load::Between);
    assert_eq!(load((0..100).map(|i| if i < 11 { 21 } else { 0 }), calm), Load::High);
    assert_eq!(load([20; 100], calm), Load::Between, "at the mark is not over it");
    assert_eq!(load([9; 100], calm), Load::Low);
}

#[test]
fn errors_say_so_too() {
    assert_eq!(load([0; 10], (1, 3)), Load::Between, "of few, one says little");
    assert_eq!(load([0; 10], (10, 100)), Load::High);
    assert_eq!(load([0; 10], (9, 100)), Load::Between);
    assert_eq!(load([0; 10], (5, 100)), Load::Low);
}

#[test]
fn one_client_that_provokes_errors_slows_nobody() {
    let pressure = Pressure::new();
    let _ = pressure.tell(MARKS);
    let client = |name: &str| pressure.client(Some(name), Ipv4Addr::LOCALHOST.into());
    (0..1000).for_each(|_| pressure.answered(client("hostile"), true));
    pressure.answered(client("quiet"), false);
    assert_eq!(pressure.tell(MARKS), Load::Low);
    // An application that fails does so for others, too.
    (0..1000).for_each(|_| pressure.answered(client("hostile"), true));
    (0..10).for_each(|answer| pressure.answered(client("quiet"), answer < 5));
    assert_eq!(pressure.tell(MARKS), Load::High);
}

#[test]
fn a_busy_client_does_not_hide_the_errors_of_others() {
    let pressure = Pressure::new();
    let _ = pressure.tell(MARKS);
    let client = |name: &str| pressure.client(Some(name), Ipv4Addr::LOCALHOST.into());
    (0..10_000).for_each(|_| pressure.answered(client("busy"), false));
    for name in ["a", "b", "c"] {
        (0..4).for_each(|answer| pressure.answered(client(name), answer < 2));
    }
    assert_eq!(pressure.tell(MARKS), Load::High);
}

#[test]
fn clients_without_a_tenant_are_told_apart_by_address() {
    let pressure = Pressure::new();
    let address = |text: &str| pressure.client(None, text.parse().unwrap());
    assert_eq!(address("2001:db8::1"), address("2001:db8::2"));
    assert_ne!(address("192.0.2.1"), address("2001:db8::1"));
}

#[test]
fn each_interval_is_told_on_its_own() {
    let pressure = Pressure::new();
    let _ = pressure.tell(MARKS);
    pressure.waited(Nanos::new(1_000_000_000));
    assert_eq!([(); 2].map(|()| pressure.tell(MARKS)), [Load::High, Load::Low]);
}
