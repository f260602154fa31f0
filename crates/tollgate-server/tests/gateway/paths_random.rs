//! Limits on paths hold however a client writes a path. Random spellings go through the gateway to nginx and to Starlette, which answer
//! with the route that served the request. A route with a limit must not serve a request that the limit did not charge.

use std::net::{SocketAddr, TcpStream};
use std::process::Command;

use tollgate_testkit::{Http, Process, Random, http, is_long, packages, program};

use super::running::Gateway;
use crate::service::{Directory, eventually, repository};
use crate::site::free_addresses;

/// The limits have the names of the routes.
const POLICY: &str = "limits:
  - { name: admin, key: [], match: { path: /admin/* }, token_bucket: { rate: 1/hour, burst: 1000000 } }
  - { name: login, key: [], match: { path: /login, ignore_case: true, trailing_slash: any }, token_bucket: { rate: 1/hour, burst: 1000000 } }
  - { name: checkout, key: [], match: { path: /checkout, ignore_case: true, trailing_slash: any }, token_bucket: { rate: 1/hour, burst: 1000000 } }";

const ROUTES: [&str; 3] = ["admin", "login", "checkout"];

fn paths() -> u64 {
    if is_long() { 40_000 } else { 2000 }
}

/// Parts that some programs drop, resolve or take for something else.
const ODDITIES: &[&str] = &[
    "/",
    "//",
    "/./",
    "/../",
    "/x/../",
    "/%2e/",
    "/%2e%2e/",
    "/.%2e/",
    "/..;/",
    "/.;/",
    ";",
    ";x=y",
    ";/",
    "%3b",
    "%3B/",
    "%2f",
    "%2F",
    "%2f%2f",
    "%252f",
    "\\",
    "%5c",
    "%5C..%5c",
    "%00",
    "%0a",
    "%0d%0a",
    "%09",
    "%7f",
    "%20",
    "+",
    ".",
    "%2e",
    "%3f",
    "%3F/",
    "%23",
    "?",
    "?/",
    "?x=/../",
    "#",
    "%",
    "%%",
    "%zz",
    "%2",
    "%u0061",
    "%ff",
    "%c0%af",
    "%c0%ae%c0%ae/",
    "%e0%80%af",
    "%ef%bc%8f",
    "%c2%a0",
    "%cc%87",
    "%e2%80%8b",
    "%ad",
    "*",
    "~",
    "\"",
    "'",
    "|",
    "^",
    "`",
    "{",
    "}",
    "[",
    "]",
    ",",
    "=",
    "@",
    ":",
    "&",
    "$",
    "\u{e9}",
    "\u{ff0f}",
    "\u{2044}",
    "\t",
];

/// A target that is near to one with a limit.
fn target(number: u64) -> Vec<u8> {
    let mut random = Random::new(number ^ 0x7061_7468);
    let random = &mut random;
    let base =
        *random.pick(&["/admin/x", "/admin/", "/login", "/login/", "/checkout", "/checkout/", "/x/admin/y"]);
    let prefixes =
        ["http://a", "HTTP://A:80", "http://a/x/..", "/", "/x/..", "/.", "//a", "/%2f", "/;", "/%3b"];
    let prefix = if random.chance(3, 4) { "" } else { random.pick(&prefixes) };
    let mut out = prefix.as_bytes().to_vec();
    let oddities = *random.pick(&[0, 0, 1, 1, 2]);
    let mut odd_at: Vec<u64> = (0..oddities).map(|_| random.below(base.len() as u64 + 1)).collect();
    odd_at.sort_unstable();
    let (spelling, rate) = (random.below(9), random.between(1, 4));
    for (at, character) in base.chars().enumerate() {
        odd_at
            .iter()
            .filter(|odd| **odd == at as u64)
            .for_each(|_| out.extend(random.pick(ODDITIES).as_bytes()));
        if random.chance(rate, 4) {
            out.extend_from_slice(&spell(random, spelling, character));
        } else {
            out.push(character as u8);
        }
    }
    odd_at
        .iter()
        .filter(|odd| **odd == base.len() as u64)
        .for_each(|_| out.extend(random.pick(ODDITIES).as_bytes()));
    out
}

/// Another spelling of a character.
fn spell(random: &mut Random, spelling: u64, character: char) -> Vec<u8> {
    let byte = character as u8;
    match spelling {
        0 => format!("%{byte:02x}"),
        1 => format!("%{byte:02X}"),
        2 => character.to_ascii_uppercase().to_string(),
        3 => format!("%{:02X}", character.to_ascii_uppercase() as u8),
        // Overlong and twice: no application should resolve these.
        4 => random
            .pick(&[
                format!("%{:02x}%{:02x}", 0xc0 | byte >> 6, 0x80 | byte & 0x3f),
                format!("%25{byte:02x}"),
            ])
            .clone(),
        // Letters that are `k` or `i` in another case: the Kelvin sign and the i without a dot.
        5 => match character {
            'k' => random.pick(&["%E2%84%AA", "%e2%84%aa", "\u{212a}"]).to_string(),
            'i' => random.pick(&["%C4%B1", "%c4%b1", "%c4%b0", "I", "\u{131}", "\u{130}"]).to_string(),
            _ => character.to_string(),
        },
        // Full width: no application should take it for ASCII.
        6 if character == '/' => "%EF%BC%8F".to_owned(),
        6 => format!("%EF%BD%{:02X}", 0x80 | byte & 0x1f),
        _ => character.to_string(),
    }
    .into_bytes()
}

/// What became of a request.
#[derive(Debug)]
struct Served {
    status: u16,
    route: String,
    charged: Vec<&'static str>,
}

/// A client that connects again when the gateway has closed the connection.
struct Client {
    address: SocketAddr,
    connection: Http,
}

impl Client {
    fn connect(address: SocketAddr) -> Self {
        Self { address, connection: Http::connect(address) }
    }

    fn get(&mut self, target: &[u8], headers: &str) -> Served {
        let request = [b"GET ", target, format!(" HTTP/1.1\r\nHost: a\r\n{headers}\r\n").as_bytes()].concat();
        let answer = self.connection.send_raw(&request).unwrap_or_else(|error| {
            panic!("{}: {error}", String::from_utf8_lossy(target));
        });
        if answer.header("connection") == Some("close") {
            self.connection = Http::connect(self.address);
        }
        let http::Answer { status, body, .. } = &answer;
        let policy = answer.header("ratelimit-policy").unwrap_or_default();
        let charged = ROUTES.into_iter().filter(|name| policy.contains(&format!("\"{name}\""))).collect();
        Served { status: *status, route: body.clone(), charged }
    }
}

/// Sends all paths, and asserts that no route serves a request that its limit did not charge.
fn assert_limits_hold(gateway: &Gateway, routings: &[&str]) {
    let mut client = Client::connect(gateway.address);
    let mut faults = Vec::new();
    let (mut guarded, mut refused) = (0, 0);
    for number in 0..paths() {
        let target = target(number);
        let headers = match routings {
            [] => String::new(),
            routings => format!("x-routing: {}\r\n", routings[number as usize % routings.len()]),
        };
        let served = client.get(&target, &headers);
        let is_guarded = served.status == 200 && ROUTES.contains(&served.route.as_str());
        guarded += u64::from(is_guarded);
        refused += u64::from(served.status == 400);
        if is_guarded && !served.charged.contains(&served.route.as_str()) {
            faults.push(format!("{:?} {headers:?}: {served:?}", String::from_utf8_lossy(&target)));
        }
    }
    assert!(faults.is_empty(), "{} of {}:\n{}", faults.len(), paths(), faults.join("\n"));
    eprintln!("{guarded} of {} requests reached a route with a limit, {refused} were refused", paths());
    assert!(
        guarded > paths() / 20 && refused > paths() / 20,
        "{guarded} reached a route, {refused} were refused"
    );
}

#[test]
fn no_spelling_of_a_path_reaches_a_route_of_nginx_without_its_limit() {
    let Some(nginx) = program("nginx") else { return };
    let [address] = free_addresses();
    let directory = Directory::new();
    directory.write(
        "nginx.conf",
        &format!(
            "daemon off; master_process off; pid pid; error_log stderr;
            events {{}}
            http {{
              access_log off;
              client_body_temp_path t; proxy_temp_path t; fastcgi_temp_path t; uwsgi_temp_path t; scgi_temp_path t;
              keepalive_requests 1000000;
              server {{
                listen {address};
                location /admin/ {{ return 200 admin; }}
                location ~* ^/login/?$ {{ return 200 login; }}
                location ~* ^/checkout/?$ {{ return 200 checkout; }}
                location / {{ return 200 other; }}
              }}
            }}"
        ),
    );
    let mut command = Command::new(nginx);
    let _nginx =
        Process::start(command.args(["-p", ".", "-c", "nginx.conf"]).current_dir(directory.path(".")));
    eventually("nginx listens", || TcpStream::connect(address).is_ok());
    let gateway = Gateway::before(&format!("http://{address}"), "", POLICY);
    assert_limits_hold(&gateway, &[]);
}

#[test]
fn no_spelling_of_a_path_reaches_a_route_of_starlette_without_its_limit() {
    let Some(venv) = packages("TOLLGATE_VENV") else { return };
    let [address] = free_addresses();
    let mut command = Command::new(venv.join("bin/python3"));
    command.args([
        "-m",
        "uvicorn",
        "starlette_application:app",
        "--http",
        "h11",
        "--log-level",
        "warning",
        "--no-access-log",
    ]);
    command.args(["--port", &address.port().to_string(), "--app-dir"]);
    command.arg(repository("crates/tollgate-server/tests/gateway"));
    // No bytecode in the repository.
    let _starlette = Process::start(command.env("PYTHONDONTWRITEBYTECODE", "1"));
    eventually("uvicorn listens", || TcpStream::connect(address).is_ok());
    let gateway = Gateway::before(&format!("http://{address}"), "", POLICY);
    assert_limits_hold(&gateway, &["as-it-is", "small-letters", "capitals", "expression", "normal"]);
}
