//! Lively synthetic traffic, for whoever wants to see something happen.

use std::sync::Arc;
use std::time::Duration;

use tollgate_policy::Request;

use crate::metrics::Protocol;
use crate::service::Service;

/// How one tenant behaves.
struct Habit {
    tenant: &'static str,
    users: u64,
    path: &'static str,
    requests: u32,   // in one go
    every: Duration, // how often
    pause: u64,      // of so many goes, one is left out; 0 for none
}

const fn habit(
    tenant: &'static str,
    users: u64,
    path: &'static str,
    requests: u32,
    every_ms: u64,
    pause: u64,
) -> Habit {
    Habit { tenant, users, path, requests, every: Duration::from_millis(every_ms), pause }
}

/// A dozen tenants: some steady, some in bursts, one that scrapes, one that is a noisy neighbour.
const HABITS: [Habit; 12] = [
    habit("acme", 200, "/api/trips", 3, 300, 5),
    habit("globex", 500, "/api/fares/estimate", 20, 100, 0),
    habit("initech", 20, "/api/trips", 1, 900, 3),
    habit("hooli", 80, "/api/search", 2, 700, 4),
    habit("umbrella", 10, "/login", 1, 1500, 2),
    habit("stark", 40, "/api/drivers/nearby", 6, 4000, 0), // opens the app: six calls at once
    habit("wayne", 40, "/api/rides/request", 6, 5000, 0),
    habit("wonka", 5, "/export/all", 1, 8000, 0),
    habit("cyberdyne", 30, "/api/payments/1", 1, 1100, 7),
    habit("soylent", 15, "/api/promotions", 12, 20_000, 0), // a burst, then nothing
    habit("scraper", 1, "/api/trips", 5, 100, 0),           // one user, as fast as it can
    habit("noisy", 3, "/api/reports/daily", 40, 200, 9),    // far beyond its share
];

/// Sends requests for as long as the process runs.
pub(crate) async fn run(service: Arc<Service>) {
    for (i, habit) in HABITS.iter().enumerate() {
        let service = Arc::clone(&service);
        tokio::spawn(async move {
            // Not all at once.
            tokio::time::sleep(Duration::from_millis(37 * i as u64)).await;
            let mut every = tokio::time::interval(habit.every);
            for round in 0_u64.. {
                every.tick().await;
                if habit.pause == 0 || !((round * 2_654_435_761) >> 7).is_multiple_of(habit.pause) {
                    go(&service, habit, round).await;
                }
            }
        });
    }
}

async fn go(service: &Service, habit: &Habit, round: u64) {
    for i in 0..habit.requests {
        let user = (round * 7 + u64::from(i)) * 2_654_435_761 % habit.users;
        let user = format!("{}-{user}", habit.tenant);
        let method = if habit.path.starts_with("/export") { "POST" } else { "GET" };
        let attributes =
            [("tenant", habit.tenant), ("user", &user), ("method", method), ("path", habit.path)];
        let request = Request { attributes: &attributes, cost: None };
        let policy = service.engine.policy();
        // What is decided is seen in the metrics, which is what it is for.
        let _ = service.calls(Protocol::http).check(&policy, &request, drop).wait().await;
    }
}
