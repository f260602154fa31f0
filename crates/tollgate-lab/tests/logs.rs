//! Logs as they are found: every kind, with faults in them, whole and in pieces.

use std::io::Write as _;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use tollgate_lab::{ClientField, LabError, Limit, LogOptions, Logs, Name, Replayed, Wanted, replay};
use tollgate_testkit::Directory;

fn replayed(files: &[&[u8]], options: LogOptions) -> Result<Replayed, LabError> {
    let directory = Directory::new();
    let files = files.iter().enumerate().map(|(number, bytes)| {
        let file = directory.path().join(format!("log-{number}"));
        std::fs::write(&file, bytes).unwrap();
        file
    });
    let logs = Logs { files: files.collect(), options };
    replay(&logs, Limit { limit: 2, window: Duration::from_secs(60) }, &Name::ALL, &mut |_| {}, None)
}

/// Requests, malformed lines, and how many the token bucket lets pass.
fn counts(text: &str, options: LogOptions) -> Result<(u64, u64, u64), LabError> {
    let replayed = replayed(&[text.as_bytes()], options)?;
    let counts = replayed.seen.counts;
    Ok((counts.requests, counts.malformed, replayed.lanes[0].tally.allowed))
}

fn by_client() -> LogOptions {
    LogOptions::default()
}

fn global() -> LogOptions {
    LogOptions { client: Wanted::Nothing, ..LogOptions::default() }
}

const LINE: &str = "10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5\n";

#[test]
fn blank_lines_are_neither_requests_nor_malformed() {
    let text = format!("\n{LINE}  \n\t\r\n{LINE}not a line\n{LINE}\n\n");
    assert_eq!(counts(&text, by_client()).unwrap(), (3, 1, 2));
    let table = "\n \t\nip,ts\n\na,1\n \na,2\r\n\r\n,,\n";
    assert_eq!(counts(table, by_client()).unwrap(), (2, 1, 2));
}

#[test]
fn malformed_lines_may_stand_before_the_first_request() {
    let text = format!("# a comment, with a comma\nanother, line\n{LINE}{LINE}{LINE}");
    assert_eq!(counts(&text, by_client()).unwrap(), (3, 2, 2));
    let binary = [b"\x00\xff\xfe junk \n".as_slice(), LINE.as_bytes()].concat();
    assert_eq!(replayed(&[&binary], by_client()).unwrap().seen.counts.malformed, 1);
}

#[test]
fn a_request_may_hold_any_bytes() {
    let odd =
        b"10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"\xff\xfe\\x16\x03\x00\" 400 0 \"-\" \"\n".as_slice();
    assert_eq!(replayed(&[odd], by_client()).unwrap().seen.counts.requests, 1);
}

#[test]
fn columns_are_guessed_in_their_order_and_whatever_their_case() {
    for (header, rows) in [
        ("Client_IP,Host,Timestamp", ["a,x,1", "a,y,2", "a,z,3"]),
        ("host\tTIME\tother", ["a\t1\tx", "a\t2\ty", "a\t3"]),
        ("remote_addr,ts", ["a,1", "a,2.5", "a,3.000000001"]),
        (
            "date,time,ip,timestamp",
            ["1970-01-01,00:00:01,a,x", "1970-01-01,00:00:02,a,x", "1970-01-01,00:00:03.5,a,x"],
        ),
        ("\u{feff}ip,\"time\"", ["\"a\",1", "a,\"2\"", "a,3,more,fields,than,named"]),
    ] {
        let text = format!("{header}\r\n{}\r\n", rows.join("\r\n"));
        assert_eq!(counts(&text, by_client()).unwrap(), (3, 0, 2), "{header}");
    }
}

#[test]
fn columns_can_be_named() {
    let text = "who,day,clock,tokens,more\na,2026-01-01,00:00:00,1,1\na,2026-01-01,00:00:01,2,0\nb,2026-01-01,00:00:01,0,0\n\
                a,2026-01-01,00:00:02,x,1\na,2026-01-01\n";
    let options = LogOptions {
        client_column: Some("Who".to_owned()),
        time_column: vec!["day".to_owned(), "clock".to_owned()],
        cost_columns: vec!["tokens".to_owned(), "more".to_owned()],
        ..by_client()
    };
    let replayed = replayed(&[text.as_bytes()], options).unwrap();
    let tally = &replayed.lanes[0].tally;
    assert_eq!((replayed.seen.counts.requests, replayed.seen.counts.malformed), (3, 2));
    assert_eq!((tally.allowed, tally.denied, tally.allowed_cost), (2, 1, 2)); // two of a's two; b only looks
}

#[test]
fn a_row_may_go_over_several_lines() {
    let text = "ip,ts,agent\na,1,\"one\ntwo\nthree\"\na,2,x\na,3,\"never\nclosed\n";
    assert_eq!(counts(text, by_client()).unwrap(), (2, 2, 2));
}

/// One quote that nobody closes does not swallow what comes after it, and is not looked for without end.
#[test]
fn a_stray_quote_costs_its_own_line_only() {
    let row = |number: usize| match number {
        10 => "a,11,\"bad\n".to_owned(),
        3000 => "a,3001,\"fine, and quoted\"\n".to_owned(),
        number => format!("a,{},x\n", number + 1),
    };
    let rows: String = (0..5000).map(row).collect();
    let (requests, malformed, _) = counts(&format!("ip,ts,agent\n{rows}"), by_client()).unwrap();
    assert_eq!((requests, malformed), (4999, 1));
    let all_stray: String = (0..20_000).map(|number| format!("a,{number},\"\n")).collect();
    let (requests, malformed, _) =
        counts(&format!("ip,ts,agent\n{all_stray}a,20000,x\n"), by_client()).unwrap();
    // Two of them are one row with a line in it, and so on.
    assert!(requests + 2 * malformed >= 10_000, "{requests} {malformed}");
}

#[test]
fn what_editors_put_before_a_file_is_overlooked() {
    let text = format!("\u{feff}{LINE}{LINE}{LINE}");
    assert_eq!(counts(&text, by_client()).unwrap(), (3, 0, 2));
    let record = "\u{feff}{\"time\":\"1.5\",\"attributes\":{\"user\":\"a\"},\"cost\":1,\"allowed\":true}\n";
    assert_eq!(counts(record, by_client()).unwrap(), (1, 0, 1));
}

#[test]
fn many_malformed_lines_before_the_first_are_counted() {
    let text = format!("{}{LINE}", "a line, which is none\n".repeat(1000));
    assert_eq!(counts(&text, by_client()).unwrap(), (1, 1000, 1));
}

fn record(at: u64) -> String {
    format!("{{\"time\":\"{at}.000000000\",\"attributes\":{{\"user\":\"a\"}},\"cost\":1,\"allowed\":true}}\n")
}

/// Records stay in the order in which they were decided, unless that cannot be the order.
#[test]
fn records_in_the_wrong_order_are_sorted() {
    let all = |times: &[u64]| {
        let text: String = times.iter().map(|at| record(*at)).collect();
        let replayed = replayed(&[text.as_bytes()], by_client()).unwrap();
        (replayed.seen.is_sorted, replayed.lanes[2].tally.allowed)
    };
    assert_eq!(all(&[1000, 1010, 1005, 1011]), (false, 2));
    assert_eq!(all(&[1000, 820, 821, 822]), (true, 3));
    let mixed = replayed(&[LINE.as_bytes(), record(1000).as_bytes()], by_client()).unwrap();
    assert_eq!((mixed.seen.is_sorted, mixed.seen.counts.requests), (true, 2));
}

#[test]
fn a_log_of_units_that_would_take_all_memory_is_refused() {
    let directory = Directory::new();
    let file = directory.path().join("log");
    std::fs::write(&file, "ts\n1\n").unwrap();
    let logs = Logs { files: vec![file], options: global() };
    let limit = Limit { limit: 2_000_000_000, window: Duration::from_secs(86_400) };
    let error = replay(&logs, limit, &Name::ALL, &mut |_| {}, None).unwrap_err().to_string();
    assert!(error.contains("16000 MB") && error.contains("--algorithm"), "{error}");
    assert!(replay(&logs, limit, &[Name::TokenBucket, Name::FixedWindow], &mut |_| {}, None).is_ok());
}

#[test]
fn without_clients_all_are_counted_as_one() {
    let text = "timestamp,cost\n1,1\n2,1\n3,1\n";
    assert_eq!(counts(text, global()).unwrap(), (3, 0, 2));
    let error = counts(text, by_client()).unwrap_err().to_string();
    assert!(error.contains(":1: no column looks like a client") && error.contains("--by global"), "{error}");
}

#[test]
fn the_bytes_of_an_answer_can_be_its_cost() {
    let options = LogOptions { cost_columns: vec!["bytes".to_owned()], ..by_client() };
    let text = format!("{}{}", LINE.replace("200 5", "200 2"), LINE.replace("200 5", "304 -"));
    let replayed = replayed(&[text.as_bytes()], options).unwrap();
    assert_eq!((replayed.lanes[0].tally.allowed, replayed.lanes[0].tally.allowed_cost), (2, 2));
}

#[test]
fn times_tell_how_finely_they_are_written() {
    for (times, resolution) in [
        (["60", "120", "180"], 60_000_000_000),
        (["60", "121", "180"], 1_000_000_000),
        (["60", "121.5", "180.1"], 100_000_000),
        (["60", "121.5", "180.25"], 10_000_000),
        (["60", "121.5", "180.0000001"], 100),
    ] {
        let text = format!("ts\n{}\n", [times; 4].concat().join("\n"));
        assert_eq!(replayed(&[text.as_bytes()], global()).unwrap().seen.resolution, resolution, "{times:?}");
    }
    assert_eq!(replayed(&[b"ts\n60\n"], global()).unwrap().seen.resolution, 1, "one time tells nothing");
}

#[test]
fn several_files_are_one_log_and_are_sorted_if_need_be() {
    let (early, late) = ("ip,ts\na,1\na,2\n", "ip,ts\na,3\na,100\n");
    let all = |files: [&str; 2]| {
        let replayed = replayed(&files.map(str::as_bytes), by_client()).unwrap();
        (replayed.seen.is_sorted, replayed.lanes[0].tally.allowed, replayed.seen.span)
    };
    let span = (1_000_000_000, 100_000_000_000);
    assert_eq!(all([early, late]), (false, 3, span));
    assert_eq!(all([late, early]), (true, 3, span));
}

/// Every fault names the file and the line.
#[test]
fn what_cannot_be_read_says_where_and_why() {
    let whole = {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        for number in 0..100_000 {
            writeln!(
                encoder,
                "10.0.0.{} - - [17/May/2015:10:05:03 +0000] \"GET /{number}\" 200 5",
                number % 256
            )
            .unwrap();
        }
        encoder.finish().unwrap()
    };
    let huge = format!("{}\n", "x".repeat(10 << 20));
    let binary: Vec<u8> =
        (0..100_000_u32).map(|number| (number.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let options = |columns: &[&str]| LogOptions {
        cost_columns: columns.iter().map(ToString::to_string).collect(),
        ..LogOptions::default()
    };
    let cases: Vec<(&str, Vec<u8>, LogOptions, &str)> = vec![
        ("empty", Vec::new(), by_client(), ":1: there is no request in this file"),
        ("blank", b"\n \n\n".to_vec(), by_client(), ":1: there is no request"),
        ("binary", binary, by_client(), ":1: "),
        ("truncated", whole[..whole.len() / 2].to_vec(), by_client(), "cannot be read on from here"),
        ("a header only", b"ip,ts\n".to_vec(), by_client(), "there is no request"),
        (
            "a wrong column",
            b"ip,ts\na,1\n".to_vec(),
            options(&["cost"]),
            ":1: there is no column `cost`: the columns are ip, ts",
        ),
        ("year 0", b"ip,ts\na,0000-01-01 00:00:00\n".to_vec(), by_client(), ":2: the row lacks"),
        (
            "year 0 of an access log",
            LINE.replace("2015", "0000").into_bytes(),
            by_client(),
            ":1: it is neither an access log",
        ),
        ("a huge line", huge.clone().into_bytes(), by_client(), ":1: "),
        (
            "a table of a huge line",
            format!("ip,ts\n{huge}").into_bytes(),
            by_client(),
            ":2: the line has more than a mebibyte",
        ),
        ("no table", b"just a word\n".to_vec(), by_client(), ":1: it is neither an access log"),
        ("JSON of something else", b"{\"a\": 1}\n".to_vec(), by_client(), ":1: it is neither an access log"),
    ];
    for (what, bytes, options, expected) in cases {
        let error = replayed(&[&bytes], options).unwrap_err().to_string();
        assert!(error.contains("log-0:") && error.contains(expected), "{what}: {error}");
    }
}

/// A few million bytes that nobody meant as a log: an error or counts, and no panic.
#[test]
fn random_bytes_do_no_harm() {
    let mut random = tollgate_testkit::Random::new(7);
    let pieces: [&[u8]; 14] = [
        b"10.0.0.1 - - [17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5",
        b"ip,ts\n",
        b"[",
        b"]",
        b"\"",
        b",",
        b"\t",
        b"\n",
        b"\r\n",
        b"{\"time\":\"1.5\",\"attributes\":{\"user\":\"a\"},\"cost\":1,\"allowed\":true}",
        b"1970-01-01 00:00:00",
        b"99999999999999999999",
        b"\xff\x00",
        b" ",
    ];
    for _ in 0..2000 {
        let mut text = Vec::new();
        for _ in 0..random.below(40) {
            text.extend_from_slice(pieces[random.below(pieces.len() as u64) as usize]);
        }
        for options in [by_client(), global()] {
            if let Err(error) = replayed(&[&text], options) {
                assert!(error.to_string().contains("log-0:"), "{error}");
            }
        }
    }
}

/// The rest of a line behind the fields before its time.
const REQUEST: &str = "[17/May/2015:10:05:03 +0000] \"GET / HTTP/1.1\" 200 5 \"-\" \"agent\"";

/// The clients of a log with these fields before the times, in their order, and the number of malformed lines.
fn clients(prefixes: &[&str], options: LogOptions) -> Result<(Vec<String>, u64), String> {
    let text: String = prefixes.iter().map(|prefix| format!("{prefix} {REQUEST}\n")).collect();
    let replayed = replayed(&[text.as_bytes()], options).map_err(|error| error.to_string())?;
    Ok((replayed.seen.clients.names(), replayed.seen.counts.malformed))
}

fn client_field(field: ClientField) -> LogOptions {
    LogOptions { client_field: Some(field), ..by_client() }
}

fn trusted_hops(hops: usize) -> LogOptions {
    LogOptions { trusted_hops: Some(hops), ..by_client() }
}

#[test]
fn the_client_of_each_known_format_is_found() {
    for (prefixes, expected) in [
        (
            &["203.0.113.9 - -", "203.0.113.8 - alice", "203.0.113.7 ident bob"][..],
            &["203.0.113.9", "203.0.113.8", "203.0.113.7"][..],
        ),
        (
            &["unicomp6.unicomp.net - -", "localhost - -", "1.2.3.xxx - -"],
            &["unicomp6.unicomp.net", "localhost", "1.2.3.xxx"],
        ),
        (
            &["203.0.113.9 - john doe", "203.0.113.8 - \"a b\"", "203.0.113.7 - - -"],
            &["203.0.113.9", "203.0.113.8", "203.0.113.7"],
        ),
        (
            &["2001:db8::1 - -", "[2001:db8::2]:443 - -", "203.0.113.9:51234 - -"],
            &["2001:db8::1", "2001:db8::2", "203.0.113.9"],
        ),
        (
            &["\"203.0.113.9\" - -", "203.0.113.8 \"-\" \"-\"", "203.0.113.7 -", "203.0.113.6"],
            &["203.0.113.9", "203.0.113.8", "203.0.113.7", "203.0.113.6"],
        ),
        (
            &["example.com:443 203.0.113.9 - -", "other.example:80 2001:db8::1 - alice"],
            &["203.0.113.9", "2001:db8::1"],
        ),
        (
            &["example.com 203.0.113.9 - -", "other.example [2001:db8::1]:5 - alice"],
            &["203.0.113.9", "2001:db8::1"],
        ),
        (
            &["example.com:443 crawler.example.net - -", "a.example b.example - -"],
            &["crawler.example.net", "b.example"],
        ),
        (
            &["203.0.113.9 example.com:443 - -", "203.0.113.8 other.example - -"],
            &["203.0.113.9", "203.0.113.8"],
        ),
        (&["2026-11-18T06:30:00Z 203.0.113.9 - -"], &["203.0.113.9"]),
    ] {
        let expected = expected.iter().map(ToString::to_string).collect();
        assert_eq!(clients(prefixes, by_client()), Ok((expected, 0)), "{prefixes:?}");
    }
}

#[test]
fn a_line_without_a_client_is_malformed() {
    for prefix in [
        "- - -",
        "unknown - -",
        "example.com:443 - -",
        "unix: - -",
        "access.log:203.0.113.9 - -",
        "Nov 18 06:30:00 web1 nginx: 203.0.113.9 - -",
        "Nov  8 06:30:00 web1 nginx[17]: crawler.example.net - -",
        "Wed Nov 18 06:30:00 2026 203.0.113.9 - -",
        "2026-11-18 06:30:00 203.0.113.9 - -",
        "2026-11-18T06:30:00Z web1 nginx: 203.0.113.9 - -",
        "<134>1 2026-11-18T06:30:00Z web1 app - - - 203.0.113.9 - -",
        "web-1  | 203.0.113.9 - -",
        "\"open 203.0.113.9 - -",
        "{\"client\":\"203.0.113.9\"} - -",
        "foo,bar - -",
        "prefix\t203.0.113.9 - -",
    ] {
        let expected = Ok((vec!["10.0.0.1".to_owned()], 1));
        assert_eq!(clients(&["10.0.0.1 - -", prefix], by_client()), expected, "{prefix}");
        let error = clients(&[prefix], by_client()).unwrap_err();
        assert!(error.contains("log-0:1: "), "{prefix}: {error}");
    }
    // Without clients, each of them is a request.
    assert_eq!(
        clients(&["- - -", "Nov 18 06:30:00 web1 nginx: 203.0.113.9 - -"], global()),
        Ok((vec![String::new()], 0))
    );
}

#[test]
fn a_file_that_can_be_read_in_two_ways_is_refused() {
    for (prefixes, line, readings) in [
        (&["203.0.113.9 10.0.0.1 - -"][..], 1, ["`203.0.113.9`", "`10.0.0.1`"]),
        (&["- 10.0.0.1 - -"], 1, ["`-`", "`10.0.0.1`"]),
        (&["203.0.113.9 example.com - -"], 1, ["`203.0.113.9`", "`example.com`"]),
        (&["a.example b.example - -"], 1, ["`a.example`", "`b.example`"]),
        (&["a.example ident john doe"], 1, ["`a.example`", "`ident`"]),
        (&["10.0.0.1 - - -"], 1, ["`10.0.0.1`", "`-`"]),
        // One line of another format.
        (
            &["203.0.113.9 - -", "example.com:443 203.0.113.9 - -"],
            2,
            ["`example.com:443 203.0.113.9`", "line 1"],
        ),
        (&["example.com 203.0.113.9 - -", "", "203.0.113.9 - -"], 3, ["`203.0.113.9 -`", "line 1"]),
        (&["example.com 203.0.113.9 - -", "203.0.113.9 10.0.0.1 - -"], 2, ["`203.0.113.9`", "`10.0.0.1`"]),
        (&["203.0.113.9 - -", "203.0.113.9 10.0.0.1 - -"], 2, ["`203.0.113.9`", "`10.0.0.1`"]),
    ] {
        let error = clients(prefixes, by_client()).unwrap_err();
        assert!(error.contains(&format!("log-0:{line}: ")), "{prefixes:?}: {error}");
        assert!(readings.iter().all(|reading| error.contains(reading)), "{prefixes:?}: {error}");
        assert!(error.contains("--client-field 1") && error.contains("--client-field 2"), "{error}");
        // Where clients do not matter, neither do the readings.
        assert!(clients(prefixes, global()).is_ok(), "{prefixes:?}");
    }
}

#[test]
fn the_field_of_the_client_can_be_chosen() {
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let lines = [
        "203.0.113.9 10.0.0.1 - -",
        "203.0.113.8 - -",
        "example.com:443 10.0.0.2 - -",
        "203.0.113.7 example.com - -",
    ];
    assert_eq!(
        clients(&lines, client_field(ClientField::First)),
        Ok((names(&["203.0.113.9", "203.0.113.8", "203.0.113.7"]), 1))
    );
    assert_eq!(
        clients(&lines, client_field(ClientField::Second)),
        Ok((names(&["10.0.0.1", "10.0.0.2", "example.com"]), 1))
    );
    for options in [client_field(ClientField::First), trusted_hops(1)] {
        let error = counts("ip,ts\na,1\n", options).unwrap_err().to_string();
        assert!(error.contains("log-0:1: ") && error.contains("for access logs only"), "{error}");
    }
}

#[test]
fn the_user_stands_behind_the_ident_in_each_format() {
    let by_user =
        |client_field| LogOptions { client_column: Some("user".to_owned()), client_field, ..by_client() };
    for (prefix, client_field, user) in [
        ("203.0.113.9 - alice", None, "alice"),
        ("203.0.113.9 - john doe", None, "john doe"),
        ("- - alice", None, "alice"),
        ("203.0.113.9, 10.0.0.1 - alice", None, "alice"),
        ("example.com:443 203.0.113.9 - alice", None, "alice"),
        ("example.com 203.0.113.9, 10.0.0.1 ident john doe", None, "john doe"),
        ("203.0.113.9 10.0.0.1 - alice", Some(ClientField::First), "alice"),
        ("203.0.113.9 10.0.0.1 - alice", Some(ClientField::Second), "alice"),
        ("203.0.113.9 ident john doe", Some(ClientField::First), "john doe"),
    ] {
        assert_eq!(clients(&[prefix], by_user(client_field)), Ok((vec![user.to_owned()], 0)), "{prefix}");
    }
}

#[test]
fn a_list_of_addresses_is_refused_until_trusted_proxies_are_set() {
    for prefix in [
        "203.0.113.9, 10.0.0.1 - -",
        "203.0.113.9,10.0.0.1 - -",
        "203.0.113.9 , 10.0.0.1 - -",
        "\"203.0.113.9, 10.0.0.1\" - -",
        "example.com:443 203.0.113.9, 10.0.0.1 - -",
        "example.com 203.0.113.9,10.0.0.1 - -",
    ] {
        let error = clients(&[prefix], by_client()).unwrap_err();
        assert!(error.contains("log-0:1: ") && error.contains("--trusted-hops"), "{prefix}: {error}");
        assert!(error.contains("`203.0.113.9`") && error.contains("`10.0.0.1`"), "{prefix}: {error}");
        for (hops, client) in [(1, "10.0.0.1"), (2, "203.0.113.9")] {
            assert_eq!(clients(&[prefix], trusted_hops(hops)), Ok((vec![client.to_owned()], 0)), "{prefix}");
        }
        // Fewer addresses than proxies: the request did not come through them.
        assert!(clients(&[prefix], trusted_hops(3)).unwrap_err().contains("log-0:1: no trusted proxy"));
    }
    let error = clients(&["203.0.113.1 - -", "unknown, 203.0.113.9 - -"], by_client()).unwrap_err();
    assert!(error.contains("log-0:2: ") && error.contains("`unknown, 203.0.113.9`"), "{error}");
}

#[test]
fn lists_of_addresses_are_read_by_the_rule_of_the_service() {
    let lines = [
        "unknown, 203.0.113.9 - -",
        "6.6.6.6, unknown - -",
        "2001:DB8::1 - -",
        "x, [2001:db8::1]:443 - -",
        "spoofed - -",
    ];
    let names = ["203.0.113.9", "2001:db8::1"].map(str::to_owned).to_vec();
    assert_eq!(clients(&lines, trusted_hops(1)), Ok((names, 2)));
}

#[test]
fn a_file_whose_beginning_shows_no_client_is_refused_at_the_first_that_follows() {
    let mut lines = vec!["Nov 18 06:30:00 web1 nginx: 203.0.113.9 - -"; 4000];
    lines.push("203.0.113.9 - -");
    let error = clients(&lines, by_client()).unwrap_err();
    assert!(error.contains("log-0:4001: ") && error.contains("--client-field 1"), "{error}");
    assert_eq!(clients(&lines, client_field(ClientField::First)), Ok((vec!["203.0.113.9".to_owned()], 4000)));
}

/// Lines of one format, made from clients that are known, give exactly these clients.
#[test]
fn random_lines_of_each_format_give_their_clients() {
    let mut random = tollgate_testkit::Random::new(13);
    for round in 0..if tollgate_testkit::is_long() { 20_000 } else { 2000 } {
        let format = round % 6;
        let (mut lines, mut expected) = (Vec::new(), Vec::new());
        for number in 0..random.between(1, 30) {
            let address = match random.below(3) {
                0 => format!("2001:db8:{:x}::{:x}", random.below(4) + 1, random.below(9) + 1),
                _ => format!("203.0.113.{}", random.below(40)),
            };
            let client = match random.below(4) {
                0 if number > 0 && matches!(format, 0 | 1) => format!("host{}.example.net", random.below(9)),
                _ => address,
            };
            let user =
                *random.pick(&["-", "alice", "john doe", "a [b", "\"c d\"", "203.0.113.250", "x, y", "e:f"]);
            // Behind an ident that is not `-`, an address could be the client, too.
            let has_ident = number > 0 && user != "203.0.113.250" && random.chance(1, 4);
            let ident = if has_ident { "ident" } else { "-" };
            let vhost = *random.pick(&["example.com", "www.example.org", "localhost"]);
            let spoofed =
                *random.pick(&["unknown, ", "6.6.6.6, ", "6.6.6.6,7.7.7.7,", "<script>,", "", "[::1]:5 , "]);
            let fields = match format {
                0 => client.clone(),
                1 => format!("{vhost}:{} {client}", random.pick(&[80, 443, 8080])),
                2 => format!("{vhost} {client}"),
                3 => format!("{spoofed}{client}"),
                4 => format!("\"{spoofed}{client}\""),
                _ => format!("{vhost}:443 {spoofed}{client}, 10.0.0.{}", random.below(3)),
            };
            lines.push(format!("{fields} {ident} {user}"));
            if !expected.contains(&client) {
                expected.push(client);
            }
        }
        let options = match format {
            0..=2 => by_client(),
            3 | 4 => trusted_hops(1),
            _ => trusted_hops(2),
        };
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(clients(&lines, options), Ok((expected, 0)), "{lines:#?}");
    }
}
