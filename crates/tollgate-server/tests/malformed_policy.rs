//! A policy file with anything at all in it is right, or refused with the place of each fault.

use crate::service::{Directory, repository, tollgate};
use tollgate_testkit::Random;

#[rustfmt::skip]
/// What may stand anywhere in a file by mistake: punctuation, characters that are hardly text, numbers that are none.
const STRAY: [&str; 34] = [
    "{", "}", "[", "]", ":", ": ", "- ", "\n", "\t", "'", "\"", "&a ", "*a ", "!!str ", "|", "%", "\u{e9}",
    "\u{1f6a7}", "\u{feff}", "\u{2028}", "\0", "\u{7f}", "\r", "-1", "0", "99999999999999999999", "1e400", ".nan",
    "null", "true", "~", "1/0s", "${", "${NOPE}",
];

#[rustfmt::skip]
/// Words of the file, and what may stand there instead.
const WORDS: [(&str, &str); 12] = [
    ("100/min", "0/min"), ("60s", "0s"), ("60s", "-5s"), ("token_bucket", "leaky_bucket"), ("tenant", ""),
    ("limit", "limits"), ("memory", "redis"), ("pro", "nobody"), ("key", "keys"), ("window", "{}"), ("name", "[]"),
    ("rate", "burst"),
];

/// The file with something else in a place or three.
fn changed(random: &mut Random, right: &str) -> String {
    let mut text = right.to_owned();
    for _ in 0..random.between(1, 3) {
        let at = text.floor_char_boundary(random.below(text.len() as u64) as usize);
        match random.below(6) {
            0 => text.truncate(at.max(1)),
            1 => _ = text.remove(at),
            2 | 3 => {
                let stray = random.pick(&STRAY);
                text.insert_str(at, stray);
            }
            // A line somewhere else, or nowhere.
            4 => {
                let mut lines: Vec<&str> = text.lines().collect();
                let line = lines.remove(random.below(lines.len() as u64) as usize);
                if random.chance(1, 2) {
                    lines.insert(random.between(0, lines.len() as u64) as usize, line);
                }
                text = lines.join("\n");
            }
            _ => {
                let (word, other) = random.pick(&WORDS);
                text = text.replacen(word, other, random.between(1, 3) as usize);
            }
        }
        if text.is_empty() {
            break;
        }
    }
    text
}

/// Whether a line tells a place of the file, as `--> tollgate.yaml:12:5` does.
fn tells_a_place(line: &str, file: &str) -> bool {
    let Some((_, place)) = line.split_once(&format!("{file}:")) else { return false };
    let numbers: Vec<_> = place.trim().split(':').map(str::parse::<usize>).collect();
    numbers.len() == 2 && numbers.iter().all(|number| number.as_ref().is_ok_and(|number| *number > 0))
}

#[test]
fn any_policy_file_is_right_or_refused_with_the_place_of_the_fault() {
    let directory = Directory::new();
    let right = std::fs::read_to_string(repository("examples/ridehailing.yaml")).unwrap();
    let mut random = Random::new(11);
    let (mut taken, mut refused) = (0, 0);
    for i in 0..600 {
        let text = changed(&mut random, &right);
        let file = directory.write("tollgate.yaml", &text);
        let file = file.to_str().unwrap();
        let output = tollgate(&["check", file]);
        let errors = String::from_utf8(output.stderr).unwrap();
        match output.status.code() {
            Some(0) => {
                assert!(errors.is_empty(), "{i}: {errors}\n{text}");
                taken += 1;
            }
            Some(1) => {
                assert!(
                    errors.lines().any(|line| tells_a_place(line, file)),
                    "{i}: no place in {errors}\n{text}"
                );
                refused += 1;
            }
            code => panic!("{i}: {code:?}: {errors}\n{text}"),
        }
    }
    assert!(taken > 50 && refused > 200, "{taken} were taken, {refused} refused");
}

#[test]
fn what_nests_without_end_is_refused() {
    let directory = Directory::new();
    for text in [
        format!("limits: {}", "[".repeat(100_000)),
        format!("limits: {}{}", "[".repeat(10_000), "]".repeat(10_000)),
        "{a: ".repeat(50_000),
        "- ".repeat(50_000),
        (0..5000).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(),
        // Each line holds ten of the line before.
        (0..12).fold("a0: &a0 x\n".to_owned(), |text, i| {
            format!("{text}a{}: &a{} [{}]\n", i + 1, i + 1, vec![format!("*a{i}"); 10].join(", "))
        }),
        "limits: &a [*a]".to_owned(),
    ] {
        let file = directory.write("tollgate.yaml", &text);
        let output = tollgate(&["check", file.to_str().unwrap()]);
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        let shown: String = text.chars().take(60).collect();
        assert_eq!(output.status.code(), Some(1), "{shown}: {errors}");
        assert!(!errors.is_empty() && errors.len() < 100_000, "{shown}: {} bytes of errors", errors.len());
    }
}

#[test]
fn a_file_that_is_no_text_is_refused_with_its_place() {
    let directory = Directory::new();
    let file = directory.path("tollgate.yaml");
    std::fs::write(&file, b"limits:\n  - name: \xff\n").unwrap();
    let output = tollgate(&["check", file.to_str().unwrap()]);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("tollgate.yaml:2:11: "), "{errors}");
}

#[test]
fn a_fault_of_syntax_is_shown_where_it_is() {
    let directory = Directory::new();
    for fault in ["  - { name: half", "\t}"] {
        let right = "limits:\n  - { name: a, key: [], token_bucket: { rate: 1/s } }\n";
        let file = directory.write("tollgate.yaml", &format!("{right}{fault}"));
        let output = tollgate(&["check", file.to_str().unwrap()]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(errors.contains("tollgate.yaml:3:"), "{errors}");
    }
}

#[test]
fn check_notes_once_which_limits_take_a_path_literally() {
    let directory = Directory::new();
    let note = |limits: &str| {
        let file = directory.write("tollgate.yaml", &format!("limits:\n{limits}"));
        let output = tollgate(&["check", file.to_str().unwrap()]);
        assert!(output.status.success(), "{output:?}");
        let told = String::from_utf8(output.stdout).unwrap();
        told.lines().filter(|line| line.starts_with("note: ")).map(str::to_owned).collect::<Vec<_>>()
    };
    let limit = |name: &str, matched: &str| {
        format!("  - {{ name: {name}, key: [], match: {{ {matched} }}, token_bucket: {{ rate: 1/s }} }}\n")
    };
    let wide = limit("wide", "path: /a, ignore_case: true, trailing_slash: any");
    let told = note(
        &[&wide[..], &limit("login", "path: /login"), &limit("half", "path: [/b, /c/*], ignore_case: true")]
            .concat(),
    );
    let [told] = &told[..] else { panic!("{told:?}") };
    assert!(told.contains("`login`, `half`") && !told.contains("wide"), "{told}");
    assert!(told.contains("`/login/` and `/LOGIN`"), "{told}");
    assert!(told.contains("match: { path: /login, ignore_case: true, trailing_slash: any }"), "{told}");
    assert_eq!(note(&wide), [] as [&str; 0]);
    assert_eq!(note(&limit("star", "path: /api/*")), [] as [&str; 0]);
    assert_eq!(note(&limit("root", "path: /")), [] as [&str; 0]);
    assert_eq!(note(&limit("other", "method: POST")), [] as [&str; 0]);
}

#[test]
fn the_keys_that_widen_a_path_need_one() {
    let directory = Directory::new();
    for (matched, fault) in [
        ("method: POST, ignore_case: true", "`ignore_case` without a `path`"),
        ("trailing_slash: any", "`trailing_slash` without a `path`"),
        ("path: /a, trailing_slash: maybe", "unknown word `maybe`"),
    ] {
        let limit = format!("{{ name: a, key: [], match: {{ {matched} }}, token_bucket: {{ rate: 1/s }} }}");
        let file = directory.write("tollgate.yaml", &format!("limits: [{limit}]"));
        let output = tollgate(&["check", file.to_str().unwrap()]);
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && told.contains(fault), "{matched}: {output:?}");
    }
}
