//! The recipes of `examples/`, as they stand but for their ports, in the proxies that they are for: nginx, Caddy, HAProxy
//! and Traefik.
//!
//! `./test` installs them. Without it, a proxy that is missing is reported as skipped.

use crate::service::json_of;
use crate::site::{Site, closed_sites, sites};

#[test]
fn what_passes_is_told_how_it_stands() {
    for site in sites() {
        let answer = site.client([127, 0, 0, 1]).send("POST", "/sign-up?a=b", &[], &"x".repeat(100_000));
        assert_eq!(answer.status, 200, "{}: {answer:?}", site.recipe.name);
        let (request, headers) = answer.body.split_once('\n').unwrap();
        assert_eq!(request, "POST /sign-up?a=b 100000", "{}", site.recipe.name);
        let told = ["\"sign-up\";r=4;t=720", "\"per-address\";q=100;w=2, \"sign-up\";q=5;w=3600"];
        if site.recipe.tells_client {
            let [state, policy] =
                ["ratelimit", "ratelimit-policy"].map(|name| answer.header(name).unwrap_or(""));
            assert!(state.starts_with(told[0]) && policy == told[1], "{}: {answer:?}", site.recipe.name);
        } else {
            assert_eq!(answer.header("ratelimit"), None, "{}", site.recipe.name);
            assert!(headers.contains(&format!("ratelimit: {}", told[0])), "{}: {headers}", site.recipe.name);
        }
    }
}

/// Signs up until it is denied, and says what is answered then.
fn spend(site: &Site) -> tollgate_testkit::http::Answer {
    for left in (0..5).rev() {
        assert_eq!(site.sign_up().status, 200, "{}: {left} should be left", site.recipe.name);
    }
    site.sign_up()
}

#[test]
fn what_is_denied_is_told_when_to_come_again() {
    for site in sites() {
        let answer = spend(&site);
        assert_eq!(answer.status, 429, "{}: {answer:?}", site.recipe.name);
        let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=720).contains(&wait), "{}: {wait}", site.recipe.name);
        assert!(answer.header("ratelimit").unwrap().starts_with("\"sign-up\";r=0"), "{answer:?}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{}", site.recipe.name);
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{}", site.recipe.name);
        let problem = json_of(&answer);
        assert_eq!(problem["status"], 429, "{}: {problem}", site.recipe.name);
        assert_eq!(problem["title"], "Too Many Requests", "{}: {problem}", site.recipe.name);
        // It is of this limit only.
        assert_eq!(site.get("/sign-up").status, 200, "{}", site.recipe.name);
    }
}

#[test]
fn a_refusal_of_the_applications_own_stays_one() {
    for site in sites() {
        let answer = site.get("/forbidden");
        assert_eq!((answer.status, answer.header("retry-after")), (403, None), "{}", site.recipe.name);
        assert!(answer.body.starts_with("GET /forbidden 0\n"), "{}: {answer:?}", site.recipe.name);
    }
}

#[test]
fn while_the_limiter_is_down_everything_passes() {
    for mut site in sites() {
        assert_eq!(spend(&site).status, 429, "{}", site.recipe.name);
        site.kill_limiter();
        for _ in 0..7 {
            let answer = site.sign_up();
            assert_eq!(answer.status, 200, "{}: {answer:?}", site.recipe.name);
            assert!(answer.body.starts_with("POST /sign-up 2\n"), "{}: {answer:?}", site.recipe.name);
            assert_eq!(answer.header("ratelimit"), None, "{}: {answer:?}", site.recipe.name);
        }
        site.start_limiter();
        site.eventually("it limits again", |site| site.sign_up().status == 429);
    }
}

#[test]
fn the_closed_form_refuses_while_the_limiter_is_down() {
    for mut site in closed_sites() {
        assert_eq!(site.sign_up().status, 200, "{}", site.recipe.name);
        site.kill_limiter();
        for _ in 0..3 {
            assert_eq!(site.get("/").status, site.recipe.closed, "{}", site.recipe.name);
        }
        site.start_limiter();
        site.eventually("it passes again", |site| site.get("/").status == 200);
        assert_eq!(spend(&site).status, 429, "{}", site.recipe.name);
    }
}

#[test]
fn no_client_chooses_its_route_its_address_or_its_cost() {
    for site in sites() {
        let name = site.recipe.name;
        // 127.0.0.1 is where the proxy asks from, so that it is trusted: of all clients it could lie best.
        for from in [[127, 0, 0, 1], [127, 0, 0, 2]] {
            let mut passed = 0;
            for i in 0..8 {
                let addresses = format!("203.0.113.{i}");
                let lies = [
                    ("X-Forwarded-For", addresses.as_str()),
                    ("X-Real-IP", addresses.as_str()),
                    ("Forwarded", "for=203.0.113.9"),
                    ("X-Forwarded-Uri", "/cheap"),
                    ("X-Forwarded-Method", "GET"),
                    ("X-Original-URI", "/cheap"),
                    ("X-Original-URL", "/cheap"),
                    ("X-Original-Method", "GET"),
                ];
                // In the query too: a proxy that hands it on would let the client say what it costs.
                let target =
                    ["/sign-up?cost=0&key=mine", "/sign-up?deny=401", "/%73ign-up", "//sign-up"][i % 4];
                let answer = site.client(from).send("POST", target, &lies, "");
                assert!([200, 429].contains(&answer.status), "{name}: {answer:?}");
                passed += usize::from(answer.status == 200);
            }
            // Five for each of the two, not one more by any of it, and no fewer by what the other did.
            assert_eq!(passed, 5, "{name}: of the client {from:?}");
        }
    }
}

#[test]
fn a_target_without_a_path_leaves_no_room_for_another() {
    for site in sites() {
        let request = "POST http://127.0.0.1 HTTP/1.1\r\nhost: 127.0.0.1\r\nx-original-uri: /sign-up\r\n\
                       x-original-url: /sign-up\r\nx-forwarded-uri: /sign-up\r\ncontent-length: 0\r\n\r\n";
        for _ in 0..6 {
            // Taken for `/`, or refused; never for what the client says it is, which would be denied in the end.
            let answer = site.client([127, 0, 0, 1]).send_raw(request.as_bytes()).unwrap();
            assert!([200, 400].contains(&answer.status), "{}: {answer:?}", site.recipe.name);
        }
        assert_eq!(site.sign_up().status, 200, "{}", site.recipe.name);
    }
}
