use super::*;

/// Notes what it is told.
#[derive(Debug, Default)]
struct Notes(Vec<Sample>);

impl Controller for Notes {
    fn observe(&mut self, sample: Sample) {
        self.0.push(sample);
    }

    fn limit(&self) -> u64 {
        1
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// What a controller is told of requests that ended at these milliseconds.
fn told(requests: impl IntoIterator<Item = (u64, Sample)>) -> Vec<Sample> {
    let mut windowed = Windowed::new(Notes::default());
    for (at, sample) in requests {
        windowed.observe_at(sample, Timestamp::from_nanos(at * 1_000_000));
    }
    windowed.controller.0
}

const QUICK: Sample = Sample { rtt: Duration::from_millis(10), in_flight: 3, dropped: false };

#[test]
fn a_window_lasts_for_ten_requests_and_a_tenth_of_a_second() {
    let every = |step: u64, count: u64| told((0..count).map(move |i| (i * step, QUICK))).len();
    assert_eq!(every(1, 1000), 9, "the tenth has not ended");
    assert_eq!(every(20, 1000), 99, "ten take 200 ms");
    assert_eq!(every(400, 10), 3, "after a second there is one, with however few");
}

#[test]
fn its_time_is_that_of_the_median_request() {
    let slow = Sample { rtt: ms(500), ..QUICK };
    let mixed = (0..200).map(|i| (i, if i % 3 == 0 { slow } else { QUICK }));
    assert!(told(mixed).iter().all(|sample| sample.rtt == ms(10)));
    let mostly = (0..200).map(|i| (i, if i % 3 == 0 { QUICK } else { slow }));
    assert!(told(mostly).iter().all(|sample| sample.rtt == ms(500)));
}

#[test]
fn a_few_drops_are_bad_luck_and_more_are_want_of_capacity() {
    let drop = Sample { dropped: true, ..QUICK };
    let of_forty = |drops: u64| {
        let samples = told((0..=400).map(move |i| (i * 5, if i % 40 < drops { drop } else { QUICK })));
        samples.iter().filter(|sample| sample.dropped).count()
    };
    assert_eq!(of_forty(0), 0);
    assert!(of_forty(1) > 0, "one of the twenty of a window");
    let rare = told((0..=4000).map(|i| (i, if i % 50 == 0 { drop } else { QUICK })));
    assert!(rare.iter().all(|sample| !sample.dropped), "two of a hundred");
    let all = told((0..300).map(|i| (i, drop)));
    assert!(!all.is_empty() && all.iter().all(|sample| sample.dropped));
}

#[test]
fn as_many_were_in_flight_as_were_at_most() {
    let rising = (0..300).map(|i| (i, Sample { in_flight: i % 100, ..QUICK }));
    assert!(told(rising).iter().all(|sample| sample.in_flight == 99));
}

#[test]
fn of_many_requests_some_stand_for_all() {
    let mut windowed = Windowed::new(Notes::default());
    for i in 0..100_000_u64 {
        let rtt = ms(if i < 20_000 { 10 } else { 30 });
        windowed.observe_at(Sample { rtt, ..QUICK }, Timestamp::from_nanos(i * 1000));
    }
    windowed.observe_at(QUICK, Timestamp::from_nanos(200_000_000));
    assert_eq!(windowed.controller.0.len(), 1);
    assert_eq!(windowed.controller.0[0].rtt, ms(30));
    assert_eq!(windowed.times.capacity(), MOST);
}
