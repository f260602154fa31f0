use super::FairQueue;

const A: u32 = 1;
const B: u32 = 2;
const C: u32 = 3;

/// Queues and serves one request at a time, and numbers requests so that the tenant can be read off
/// the id.
struct Server {
    queue: FairQueue,
    next: u64,
}

impl Server {
    fn new() -> Self {
        Self { queue: FairQueue::new(1, usize::MAX), next: 0 }
    }

    fn push(&mut self, tenant: u32, weight: u64, cost: u64, times: usize) {
        for _ in 0..times {
            self.next += 1;
            assert!(self.queue.push(tenant, weight, cost, None, self.next * 10 + u64::from(tenant)));
        }
    }

    /// Dispatches the next and lets it run; the tenant whose it is.
    fn start(&mut self) -> Option<(u64, u32)> {
        let id = self.queue.dispatch(0)?;
        Some((id, u32::try_from(id % 10).unwrap()))
    }

    /// Dispatches so many, each finished as soon as started.
    fn serve(&mut self, times: usize) -> Vec<u32> {
        let mut served = Vec::new();
        for _ in 0..times {
            let (id, tenant) = self.start().expect("something waits");
            let cost = self.queue.running[0].cost;
            assert!(self.queue.finish(id, cost));
            served.push(tenant);
        }
        served
    }
}

fn count(served: &[u32], tenant: u32) -> usize {
    served.iter().filter(|other| **other == tenant).count()
}

#[test]
fn wf_1_two_to_one() {
    let mut server = Server::new();
    server.push(A, 2, 1, 20);
    server.push(B, 1, 1, 20);
    assert_eq!(server.serve(9), [A, B, A, A, B, A, A, B, A]);
    assert_eq!((server.queue.served(A), server.queue.served(B)), (6, 3));
}

#[test]
fn wf_2_no_debt_for_idle_capacity() {
    let mut server = Server::new();
    server.push(A, 1, 1, 1000);
    assert_eq!(count(&server.serve(1000), A), 1000);
    let mut served = Vec::new();
    for _ in 0..1000 {
        server.push(A, 1, 1, 1);
        server.push(B, 1, 1, 1);
        served.extend(server.serve(1));
    }
    assert_eq!((count(&served, A), count(&served, B)), (500, 500));
    assert!(served.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn wf_3_no_credit_for_idleness() {
    let mut server = Server::new();
    server.push(B, 1, 1, 1);
    server.push(A, 1, 1, 5000);
    server.serve(3000);
    server.push(B, 1, 1, 100);
    assert!(server.serve(200).windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn wf_4_idle_share_is_redistributed() {
    let mut server = Server::new();
    server.push(A, 5, 1, 1);
    server.push(B, 3, 1, 1000);
    server.push(C, 2, 1, 1000);
    assert_eq!(count(&server.serve(11), A), 1);
    let served = server.serve(1000);
    assert_eq!((count(&served, A), count(&served, B), count(&served, C)), (0, 600, 400));
}

#[test]
fn wf_5_small_demand_is_untouched() {
    // In ninths of a second: A comes every 10, B every 90, and a request takes 18. What ends at an
    // instant makes room before what arrives at it, so B's request of 2000 s comes after the last
    // dispatch.
    let mut server = Server::new();
    let (mut served, mut running) = (Vec::new(), None);
    for now in 0..=2000 * 9 {
        if now % 18 == 0
            && let Some(id) = running.take()
        {
            server.queue.finish(id, 1);
        }
        for arrives in [None, Some((A, 10)), Some((B, 90))] {
            if let Some((tenant, every)) = arrives
                && now % every == 0
            {
                server.push(tenant, 1, 1, 1);
            }
            if let Some((id, tenant)) = server.start() {
                running = Some(id);
                served.push(tenant);
            }
        }
    }
    assert_eq!((served.len(), count(&served, A), count(&served, B)), (1001, 801, 200));
}

#[test]
fn wf_6_costs() {
    let mut server = Server::new();
    server.push(A, 1, 10, 100);
    server.push(B, 1, 1, 1000);
    while server.queue.served(A) + server.queue.served(B) < 110 {
        server.serve(1);
    }
    assert!(server.queue.served(A).abs_diff(55) <= 10, "{}", server.queue.served(A));
    assert!(server.queue.served(B).abs_diff(55) <= 10, "{}", server.queue.served(B));
}

#[test]
fn wf_8_a_cap_is_one_tenants_own() {
    let mut queue = FairQueue::new(1, 50);
    assert!((0..50).all(|id| queue.push(A, 1, 1, None, id)));
    assert!(!queue.push(A, 1, 1, None, 50));
    assert!(queue.push(B, 1, 1, None, 51));
    assert_eq!(queue.dispatch(0), Some(0));
    // The one that runs waits no longer.
    assert!(queue.push(A, 1, 1, None, 52));
}

#[test]
fn wf_8_a_passed_deadline_is_dropped_uncharged() {
    let mut queue = FairQueue::new(1, 50);
    queue.push(A, 1, 5, Some(9), 1);
    queue.push(A, 1, 5, Some(10), 2);
    queue.push(A, 1, 5, None, 3);
    queue.push(B, 1, 1, None, 4);
    assert_eq!(queue.dispatch(10), Some(2));
    assert_eq!((queue.take_expired(), queue.take_expired()), (vec![1], vec![]));
    assert_eq!(queue.served(A), 5);
    queue.finish(2, 5);
    assert_eq!(queue.dispatch(10), Some(4));
    queue.finish(4, 1);
    assert_eq!(queue.dispatch(10), Some(3));
}

#[test]
fn no_slot_nothing_dispatched() {
    let mut queue = FairQueue::new(2, 50);
    assert_eq!(queue.dispatch(0), None);
    for id in 1..=3 {
        queue.push(A, 1, 1, None, id);
    }
    assert_eq!([queue.dispatch(0), queue.dispatch(0), queue.dispatch(0)], [Some(1), Some(2), None]);
    assert_eq!((queue.running(), queue.waiting(A)), (2, 1));
    assert!(queue.finish(1, 1));
    assert!(!queue.finish(1, 1));
    assert_eq!(queue.dispatch(0), Some(3));
}

#[test]
fn a_request_that_cost_more_than_estimated_is_paid_for() {
    let mut server = Server::new();
    server.push(A, 1, 1, 10);
    server.push(B, 1, 1, 10);
    let (id, _) = server.start().unwrap();
    server.queue.finish(id, 4);
    assert_eq!(server.serve(5), [B, B, B, B, A]);
    assert_eq!((server.queue.served(A), server.queue.completed(A)), (2, 5));
}

#[test]
fn a_request_that_cost_less_is_given_back_but_not_below_v() {
    let mut server = Server::new();
    server.push(A, 1, 4, 1);
    server.push(A, 1, 1, 10);
    server.push(B, 1, 1, 10);
    let (id, tenant) = server.start().unwrap();
    assert_eq!(tenant, A);
    server.queue.finish(id, 0);
    assert_eq!(server.serve(4), [A, B, A, B]);
}

#[test]
fn a_cancelled_head_passes_its_turn_on() {
    let mut queue = FairQueue::new(1, 50);
    queue.push(A, 1, 9, None, 1);
    queue.push(A, 1, 1, None, 2);
    queue.push(B, 1, 1, None, 3);
    assert!(queue.cancel(1));
    assert!(!queue.cancel(1));
    assert_eq!(queue.dispatch(0), Some(2));
    assert!(!queue.cancel(2), "it runs");
}

#[test]
fn tags_start_again_when_all_is_idle() {
    let mut server = Server::new();
    server.push(A, 1, 7, 3);
    server.serve(2);
    assert!(*server.queue.virtual_time() > num_traits::Zero::zero());
    server.serve(1);
    assert_eq!(*server.queue.virtual_time(), num_traits::Zero::zero());
    server.push(A, 1, 1, 1);
    server.push(B, 1, 1, 1);
    assert_eq!(server.serve(2), [A, B]);
}
