use super::*;

const MARKS: AdaptiveRates =
    AdaptiveRates { high: Duration::from_millis(20), low: Duration::from_millis(10), floor: 100 };

/// The load of an interval in which requests waited for so many milliseconds, and so many of so many answers were errors.
fn load(waits: impl IntoIterator<Item = u64>, (errors, answers): (u64, u64)) -> Load {
    let pressure = Pressure::new();
    let _ = pressure.tell(MARKS);
    waits.into_iter().for_each(|ms| pressure.waited(Nanos::new(ms * 1_000_000)));
    (0..answers).for_each(|answer| pressure.answered(answer < errors));
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
fn each_interval_is_told_on_its_own() {
    let pressure = Pressure::new();
    let _ = pressure.tell(MARKS);
    pressure.waited(Nanos::new(1_000_000_000));
    assert_eq!([(); 2].map(|()| pressure.tell(MARKS)), [Load::High, Load::Low]);
}
