use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;
use serde_json::{Value, json};

use super::super::app::{App, Effect};
use super::super::frame::{Frame, HotLists};
use super::super::keys::Key;
use super::super::series::Steps;

#[expect(clippy::disallowed_methods, reason = "an `Instant` has no other beginning")]
fn some_time() -> Instant {
    Instant::now()
}

/// A screen without a service.
struct Screen {
    app: App,
    begin: Instant,
    now: Instant,
}

fn limit(name: &str, algorithm: &str, numbers: Value) -> Value {
    json!({ "name": name, "algorithm": algorithm, "algorithm_in_use": algorithm, "numbers": numbers, "key": ["user"] })
}

fn start() -> Value {
    let mut candidate = limit("candidate", "sliding_counter", json!({ "limit": "30", "window": "60s" }));
    candidate["shadow"] = true.into();
    json!({
        "instance": "web-3", "version": "0.1.0", "key_names": "clear", "step": 5,
        "policy": { "limits": [
            limit("per-tenant", "token_bucket", json!({ "rate": "100/min", "burst": "20" })),
            limit("per-user", "token_bucket", json!({ "rate": "5/s", "burst": "10" })),
            limit("export", "leaky_bucket", json!({ "rate": "2/s", "queue": "10" })),
            candidate,
        ]},
        "history": [{ "allowed": 500, "denied": 5 }, null, { "allowed": 1000, "denied": 50 }],
        "histories": { "per-user": [{ "allowed": 250, "denied": 25 }] },
        "now": 1000.0,
        "requests": { "allowed": 12_000, "delayed": 40, "denied": 345, "errors": 0 },
        "decision": { "p50": 1.2e-6, "p99": 9e-6 },
        "keys": 12_300, "bytes": 2_202_010, "max_bytes": 1_073_741_824,
        "store": { "kind": "memory" },
        "limits": [
            { "name": "per-tenant", "allowed": 9000, "denied": 0, "tokens": 9000 },
            { "name": "per-user", "allowed": 2_345_678, "denied": 345, "tokens": 2_345_678, "remaining_p50": 0.4, "remaining_p95": 0.9 },
            { "name": "export", "allowed": 40, "delayed": 40 },
            { "name": "candidate", "allowed": 10, "denied": 90, "newly_denied": 30 },
        ],
        "hot": { "per-user": { "hits": { "keys": [{ "key": ["ann"], "count": 50, "error": 2 }], "total": 100 },
            "denials": { "keys": [{ "key": ["acme", "bob"], "count": 300 }], "total": 345 } } },
    })
}

fn tick() -> Value {
    json!({
        "now": 1005.0,
        "requests": { "allowed": 13_700, "delayed": 45, "denied": 405, "errors": 0 },
        "decision": { "p50": 1.2e-6, "p99": 9e-6 },
        "keys": 12_300, "bytes": 2_202_010, "max_bytes": 1_073_741_824,
        "store": { "kind": "memory" },
        "limits": [
            { "name": "per-tenant", "allowed": 10_500, "denied": 0 },
            { "name": "per-user", "allowed": 2_346_678, "denied": 405, "tokens": 2_346_678, "remaining_p50": 0.35, "remaining_p95": 0.9 },
            { "name": "export", "allowed": 45, "delayed": 45, "remaining_p50": 0.0 },
            { "name": "candidate", "allowed": 10, "denied": 1090, "newly_denied": 30 },
        ],
        "events": [{ "number": 0, "at": 990.0, "kind": "reload", "text": "limit `export` is new" }],
    })
}

impl Screen {
    fn new() -> Self {
        let mut screen = Self::with(&start());
        screen.tick(&tick());
        screen
    }

    fn with(start: &Value) -> Self {
        let begin = some_time();
        let mut app = App::new("127.0.0.1:8080", begin, true);
        app.add(Frame::read("start", &start.to_string()).unwrap().unwrap());
        Self { app, begin, now: begin + Duration::from_secs(65) }
    }

    fn tick(&mut self, tick: &Value) {
        self.app.add(Frame::read("tick", &tick.to_string()).unwrap().unwrap());
    }

    fn press(&mut self, keys: &str) -> Effect {
        keys.chars().map(|key| self.app.press(Key::Char(key))).last().unwrap()
    }

    fn terminal(&mut self, width: u16, height: u16) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| super::draw(frame, &mut self.app, self.now)).unwrap();
        terminal
    }

    /// The lines of the screen, without the spaces at their ends.
    fn lines(&mut self, width: u16, height: u16) -> Vec<String> {
        let terminal = self.terminal(width, height);
        let buffer = terminal.backend().buffer();
        let line = |row: u16| (0..width).map(|column| buffer[(column, row)].symbol()).collect::<String>();
        (0..height).map(|row| line(row).trim_end().to_owned()).collect()
    }

    fn text(&mut self, width: u16, height: u16) -> String {
        self.lines(width, height).join("\n")
    }

    /// The first word of each row of the table.
    fn names(&mut self) -> Vec<String> {
        let lines = self.lines(120, 40);
        let head = lines.iter().position(|line| line.trim_start().starts_with("LIMIT")).unwrap();
        let rows = lines[head + 1..].iter().take_while(|line| !line.is_empty());
        rows.map(|row| row.trim_start_matches(['›', ' ']).split(' ').next().unwrap().to_owned()).collect()
    }
}

#[test]
fn the_overview_has_the_answer_the_numbers_and_the_limits() {
    let mut screen = Screen::new();
    let lines = screen.lines(120, 40);
    assert!(lines[0].starts_with("web-3 · store: memory · tollgate 0.1.0 · 127.0.0.1:8080"), "{}", lines[0]);
    assert!(lines[0].ends_with("connected 1 min 5 s"), "{}", lines[0]);
    assert_eq!(lines[1], "12 of 352 requests per second denied, all by `per-user`.");
    assert_eq!(lines[2], "● 340/s allowed   × 12/s denied   ◔ 1/s delayed   429: 3.4%");
    assert_eq!(lines[3], "decision p50 1.2 µs, p99 9 µs   12 300 keys   2.1 MiB of 1 GiB");
    let row = |name: &str| {
        let line = lines.iter().find(|line| line.trim_start_matches(['›', ' ']).starts_with(name)).unwrap();
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect::<Vec<_>>().join("|")
    };
    assert_eq!(
        row("per-user"),
        "›per-user|token_bucket rate 5/s, burst 10|200|0|12|5.7%|2 346 678|405|35%|× acme / bob 87%"
    );
    assert_eq!(row("export"), "export|leaky_bucket rate 2/s, queue 10|1|1|0|0%|45|0|0%|–");
    let text = lines.join("\n");
    assert!(text.contains("EVENTS    15 s ago  reload  limit `export` is new"), "{text}");
    assert!(text.contains("× /s▼"), "{text}");
    assert!(lines[39].starts_with("q quit") && lines[39].ends_with("4 limits"), "{}", lines[39]);
    let charts: Vec<&String> = lines.iter().filter(|line| line.contains("max ")).collect();
    assert!(
        charts[0].ends_with("█ ██ max 340/s in 20 s") || charts[0].contains("max 340/s in 20 s"),
        "{text}"
    );
}

#[test]
fn columns_are_dropped_by_priority_and_nothing_overflows() {
    let mut screen = Screen::new();
    for (width, has, has_not) in [
        (200, &["ALGORITHM", "HOTTEST KEY", "LAST MINUTES", "DELAYED"][..], &[][..]),
        (80, &["LIMIT", "× /s▼", "● /s", "× %", "ALLOWED", "DENIED"], &["HOTTEST"]),
        (40, &["LIMIT", "× /s▼", "● /s"], &["ALGORITHM", "ALLOWED"]),
        (24, &["LIMIT", "× /s▼"], &["ALLOWED"]),
    ] {
        let text = screen.text(width, 12);
        assert!(has.iter().all(|title| text.contains(title)), "{width}:\n{text}");
        assert!(has_not.iter().all(|title| !text.contains(title)), "{width}:\n{text}");
    }
    for (width, height) in [(40, 10), (24, 5), (80, 24), (23, 4), (1, 1), (300, 100)] {
        let lines = screen.lines(width, height);
        assert_eq!(lines.len(), usize::from(height));
    }
    let lines = screen.lines(40, 10);
    assert!(lines[0].ends_with("connected 1 min 5 s"), "{lines:?}");
    assert!(lines[8].contains("candidate"), "all four limits fit: {lines:?}");
    assert!(screen.text(20, 4).contains("needs 24 x 5"));
}

#[test]
fn rows_are_sorted_reversed_and_filtered() {
    let mut screen = Screen::new();
    let by_denials = ["per-user", "per-tenant", "export", "candidate"];
    assert_eq!(screen.names(), by_denials, "by denials per second, shadow limits last");
    screen.press("r");
    assert_eq!(screen.names()[2..], ["per-user", "candidate"]);
    screen.press("r<<");
    assert_eq!(screen.names()[0], "per-tenant", "by allowed per second");
    assert!(screen.text(120, 40).contains("● /s▼"));
    screen.press("<");
    assert_eq!(screen.names(), ["candidate", "export", "per-tenant", "per-user"]);
    assert!(screen.text(120, 40).contains("LIMIT▲"));
    screen.press("/PER-");
    assert_eq!(screen.names(), ["per-tenant", "per-user"], "while it is typed");
    assert!(screen.text(120, 40).contains("Filter by name: PER-"));
    screen.press("u");
    screen.app.press(Key::Enter);
    assert_eq!(screen.names(), ["per-user"]);
    assert!(screen.text(120, 40).contains("1 of 4 limits: `PER-u`"));
    screen.press("/x");
    assert!(screen.text(120, 40).contains("No name of a limit contains `PER-ux`. Esc clears the filter."));
    screen.app.press(Key::Escape);
    assert_eq!(screen.names().len(), 4);
}

#[test]
fn the_selected_limit_stays_selected_and_in_view() {
    let mut screen = Screen::new();
    let selected = |screen: &mut Screen| {
        let lines = screen.lines(80, 8);
        let line = lines.iter().find(|line| line.starts_with('›')).cloned();
        line.unwrap_or_default().trim_start_matches('›').split(' ').next().unwrap().to_owned()
    };
    assert_eq!(selected(&mut screen), "per-user");
    screen.press("j");
    assert_eq!(selected(&mut screen), "per-tenant");
    screen.press("r");
    assert_eq!(selected(&mut screen), "per-tenant", "also where it is now the first");
    screen.app.press(Key::Home);
    screen.press("r");
    assert_eq!(selected(&mut screen), "per-user", "the first row, whichever it is");
    for key in [Key::End, Key::PageUp, Key::PageDown, Key::Up, Key::Down] {
        screen.app.press(key);
        assert_ne!(selected(&mut screen), "");
    }
}

#[test]
fn a_limit_opens_with_its_numbers_history_and_keys() {
    let mut screen = Screen::new();
    assert_eq!(screen.app.press(Key::Enter), Effect::LoadDetail);
    let text = screen.text(120, 40);
    for part in [
        "per-user  token_bucket rate 5/s, burst 10",
        "key user; match every request",
        "12 of 212 requests per second denied (5.7%).",
        "● 200/s allowed, 2 346 678 in all   × 12/s denied, 405 in all",
        "2 346 678 tokens",
        "left: median 35%, p95 90%",
        "BY REQUESTS",
        "acme / bob",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    assert!(text.contains("50 ≤2   50%"), "{text}");
    // The answers of the service replace what the frames had.
    let hot: HotLists = serde_json::from_value(
        json!({ "denials": { "keys": [{ "key": ["eve"], "count": 7 }], "total": 7 } }),
    )
    .unwrap();
    screen.app.add_detail("another", Err("no".to_owned()));
    screen.app.add_detail("per-user", Ok((Steps::default(), hot)));
    let text = screen.text(120, 40);
    assert!(text.contains("eve") && text.contains("no steps yet") && !text.contains("acme"), "{text}");
    screen.app.add_detail("per-user", Err("127.0.0.1:8080 is gone".to_owned()));
    assert!(screen.text(120, 40).contains("Not up to date: 127.0.0.1:8080 is gone"));
    for key in [Key::Down, Key::PageDown, Key::PageDown, Key::PageUp, Key::Home] {
        screen.app.press(key);
        assert!(!screen.text(40, 10).trim().is_empty());
    }
    screen.app.press(Key::Escape);
    assert!(screen.text(120, 40).contains("HOTTEST KEY"));
}

#[test]
fn a_shadow_limit_shows_what_only_it_would_deny() {
    let mut screen = Screen::new();
    screen.press("jjj");
    screen.app.press(Key::Enter);
    let text = screen.text(120, 40);
    for part in ["candidate (shadow: denies nothing)", "would be denied (100%)", "newly denied, 30 in all"] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
}

#[test]
fn hashes_are_announced() {
    let mut hashed = start();
    hashed["key_names"] = "hashed".into();
    let mut screen = Screen::with(&hashed);
    assert!(screen.text(120, 40).contains("HOTTEST (HASH)"));
    screen.press("/per-u");
    screen.app.press(Key::Enter);
    screen.app.press(Key::Enter);
    assert!(screen.text(120, 40).contains("Key names are hashes: pass --token-file to see the names."));
}

#[test]
fn a_pause_keeps_what_is_shown() {
    let mut screen = Screen::new();
    screen.press("p");
    let mut later = tick();
    later["now"] = 1012.0.into();
    later["limits"] = json!([{ "name": "per-user", "allowed": 3_000_000, "denied": 9999 }]);
    screen.tick(&later);
    let text = screen.text(120, 40);
    assert!(
        text.contains("2 346 678") && !text.contains("3 000 000") && text.contains("paused 7 s ago"),
        "{text}"
    );
    screen.press("p");
    let text = screen.text(120, 40);
    assert!(text.contains("3 000 000") && text.contains("connected"), "{text}");
}

#[test]
fn a_lost_connection_is_the_first_sentence() {
    let mut screen = Screen::new();
    screen.app.lost(screen.begin + Duration::from_secs(53), "nothing listens on 127.0.0.1:8080: start");
    screen.app.lost(screen.begin + Duration::from_secs(60), "nothing listens on 127.0.0.1:8080: start");
    let lines = screen.lines(120, 40);
    assert!(lines[0].ends_with("× lost 12 s ago"), "{}", lines[0]);
    assert!(
        lines[1].starts_with("Connection lost 12 s ago, trying again. The numbers are old. nothing listens"),
        "{}",
        lines[1]
    );
    // Another process answers: nothing of the past goes into its rates.
    screen.app.connected(screen.now);
    let mut new = start();
    (new["now"], new["requests"]["allowed"]) = (1006.0.into(), 20_000.into());
    screen.app.add(Frame::read("start", &new.to_string()).unwrap().unwrap());
    assert_eq!(screen.lines(120, 40)[1], "Measuring: rates are known after two frames.");
}

#[test]
fn the_store_and_the_gateway_are_shown_where_there_are_any() {
    let mut with = tick();
    with["store"] = json!({ "kind": "redis", "mode": "lease", "calls": 10, "errors": 3, "shards": [
        { "name": "a:6379", "state": "closed", "is_up": true, "since": 60.0 },
        { "name": "b:6379", "state": "open", "is_up": false, "since": 12.0 },
    ]});
    with["sources"] = json!({ "lease": 4100, "store": 0 });
    with["gateway"] = json!({ "slots": { "in_use": 3, "limit": 40, "waiting": 2, "is_adaptive": true },
        "upstreams": [{ "name": "app:1", "in_flight": 3, "is_up": true }, { "name": "app:2", "is_up": false }],
        "ended": { "forwarded": 1234, "no_slot": 5, "gone": 0 }, "duration_p50": 0.012, "duration_p99": 0.3 });
    let mut screen = Screen::new();
    screen.tick(&with);
    let text = screen.text(120, 40);
    for part in [
        "Redis: fallback on 1 of 2 servers since 12 s",
        "GATEWAY   3 of 40 slots in use (adaptive)   2 wait   upstream p50 12 ms, p99 300 ms   forwarded 1 234, no slot 5",
        "UPSTREAMS × app:2: fails, 0 in flight   app:1: 3 in flight",
        "STORE     10 calls, 3 errors   × b:6379: no answer since 12 s (open)   a:6379: answers",
    ] {
        assert!(text.contains(part), "{part}:\n{text}");
    }
    with["store"]["shards"][1]["is_up"] = true.into();
    screen.tick(&with);
    assert!(screen.text(120, 40).contains("Redis: lease, 410 decisions per call"));
}

#[test]
fn a_service_without_requests_says_what_to_send() {
    let new = json!({ "now": 1.0, "store": { "kind": "memory" }, "policy": { "limits": [limit("only", "gcra", json!({}))] } });
    let mut screen = Screen::with(&new);
    let text = screen.text(120, 40);
    assert!(text.contains("No requests yet: send one to POST /v1/check"), "{text}");
    assert!(text.contains("no steps yet") && text.contains("1 limit"), "{text}");
    screen.tick(&json!({ "now": 9.0, "requests": { "allowed": 5 }, "limits": [] }));
    screen.tick(&json!({ "now": 19.0, "requests": { "allowed": 5 }, "limits": [] }));
    assert!(screen.text(120, 40).contains("No requests in the last 5 seconds."));
    assert!(Screen::with(&json!({ "now": 1.0 })).text(80, 24).contains("The policy has no limits."));
}

#[test]
fn hostile_names_never_reach_the_terminal() {
    let hostile = "\u{1b}[31m\u{202e}\u{7}\n".to_owned() + &"x".repeat(4000);
    let mut bad = start();
    bad["instance"] = hostile.as_str().into();
    bad["policy"]["limits"][1]["name"] = hostile.as_str().into();
    bad["limits"][1]["name"] = hostile.as_str().into();
    bad["store"] = json!({ "kind": hostile, "mode": hostile });
    bad["events"] = json!([{ "kind": hostile, "text": hostile }]);
    bad["hot"] = json!({ hostile.as_str(): { "hits": { "keys": [{ "key": [hostile, "b"], "count": 1 }], "total": 1 } } });
    let mut screen = Screen::with(&bad);
    screen.app.lost(screen.begin, &hostile);
    let look = |screen: &mut Screen| {
        for (width, height) in [(120, 40), (40, 10), (200, 60)] {
            let text = screen.text(width, height);
            assert!(
                !text.chars().any(|letter| letter.is_control() && letter != '\n' || letter == '\u{202e}'),
                "{text:?}"
            );
        }
        screen.text(120, 40)
    };
    assert!(look(&mut screen).contains("\\x1b[31m\\u{202e}\\x07\\n"));
    screen.press("/\\x1b");
    assert!(look(&mut screen).contains("…"));
    screen.app.press(Key::Enter);
    screen.app.press(Key::Enter);
    assert!(look(&mut screen).contains("\\x1b[31m"));
}

#[test]
fn without_color_everything_can_still_be_read() {
    let mut screen = Screen::new();
    let text = screen.text(120, 40);
    let colored = |screen: &mut Screen| {
        let terminal = screen.terminal(120, 40);
        terminal
            .backend()
            .buffer()
            .content
            .iter()
            .any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(colored(&mut screen));
    screen.app.has_color = false;
    assert!(!colored(&mut screen));
    assert_eq!(screen.text(120, 40), text);
}

#[test]
fn help_opens_and_any_key_closes_it() {
    let mut screen = Screen::new();
    screen.press("?");
    assert!(screen.text(80, 24).contains("reverse the order"));
    assert!(screen.text(80, 24).contains("(shadow)  the limit denies nothing"));
    screen.press("x");
    assert!(!screen.text(80, 24).contains("reverse the order"));
    assert_eq!(screen.press("q"), Effect::Quit);
    assert_eq!(screen.app.press(Key::Interrupt), Effect::Quit);
}
