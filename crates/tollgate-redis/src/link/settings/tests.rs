use super::*;

fn settings(urls: &[&str], topology: Topology) -> Settings {
    Settings {
        urls: urls.iter().map(|&url| url.to_owned()).collect(),
        topology,
        username: None,
        password: None,
        tls: None,
        deadline: Duration::from_millis(25),
    }
}

fn sentinel(master: &str) -> Topology {
    Topology::Sentinel { master: master.to_owned(), username: None, password: Some("hidden".into()) }
}

#[test]
fn urls_are_read_as_people_write_them() {
    for (url, topology, address, database) in [
        ("redis://localhost", Topology::Single, "localhost:6379", 0),
        ("redis://my_host:7000/3", Topology::Single, "my_host:7000", 3),
        ("redis://127.0.0.1:7000/", Topology::Cluster, "127.0.0.1:7000", 0),
        ("redis://[::1]:7000", Topology::Single, "[::1]:7000", 0),
        ("redis://s1", sentinel("main"), "s1:26379", 0),
        ("redis://s1/2", sentinel("main"), "s1:26379", 2),
    ] {
        let plan = settings(&[url], topology).read().unwrap_or_else(|error| panic!("{url}: {error}"));
        assert_eq!(plan.addresses[0].to_string(), address, "{url}");
        assert_eq!(plan.connector.greeting.database, database, "{url}");
    }
}

#[test]
fn nonsense_is_refused_in_words() {
    let single = Topology::Single;
    for (urls, topology, words) in [
        (&[][..], single.clone(), "0 URLs"),
        (&["localhost:6379"], single.clone(), "unknown scheme `localhost`"),
        (&["http://a"], single.clone(), "unknown scheme `http`"),
        (&["redis://"], single.clone(), "names no host"),
        (&["redis://a:0"], single.clone(), "port 0"),
        (&["redis://a:70000"], single.clone(), "invalid port"),
        (&["redis://a/x"], single.clone(), "must be a number"),
        (&["redis://a?b=c"], single.clone(), "nothing may follow"),
        (&["redis://user:hidden@a"], single.clone(), "settings of their own"),
        (&["redis://a", "redis://b"], single.clone(), "several URLs"),
        (&["redis://a", "rediss://b"], Topology::Cluster, "either all URLs"),
        (&["redis://a/1"], Topology::Cluster, "no other database"),
        (&["redis://a/1", "redis://b/2"], sentinel("main"), "the same database"),
        (&["redis://a"], sentinel(""), "by its name"),
    ] {
        let error = settings(urls, topology).read().err().unwrap_or_else(|| panic!("{urls:?} is taken"));
        assert!(error.to_string().contains(words), "{urls:?}: {error}");
        assert!(!error.to_string().contains("hidden"), "{error}");
    }
}

#[test]
fn what_contradicts_the_rest_is_refused() {
    let good = settings(&["rediss://a"], Topology::Single);
    let named = |file: &str| Some(PathBuf::from(file));
    for (settings, words) in [
        (Settings { username: Some("me".to_owned()), ..good.clone() }, "no password"),
        (Settings { deadline: Duration::ZERO, ..good.clone() }, "between 1 ms and 60 s"),
        (
            Settings { tls: Some(Tls { ca_file: named("/no/such/file"), ..Tls::default() }), ..good.clone() },
            "/no/such/file: ",
        ),
        (
            Settings { urls: vec!["redis://a".to_owned()], tls: Some(Tls::default()), ..good.clone() },
            "begin with `rediss://`",
        ),
    ] {
        let error = settings.read().err().unwrap_or_else(|| panic!("{settings:?} is taken"));
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let mut settings = settings(&["redis://me:hidden@a"], sentinel("main"));
    settings.password = Some("hidden".into());
    assert!(!format!("{settings:?}").contains("hidden"), "{settings:?}");
}
