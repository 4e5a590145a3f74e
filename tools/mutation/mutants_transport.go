package main

// transportMutants break rules about TLS, and about what is sent to servers.
var transportMutants = []mutant{
	{
		name: "transport/authority", breaks: "a client accepts a server that no authority of --ca-file has certified",
		file: "cmd/internal/cmdline/authorities.go",
		edits: []edit{
			{"if _, err := s.PeerCertificates[0].Verify(options); err != nil {", "if _, err := s.PeerCertificates[0].Verify(options); false {"},
		},
		tests: "./cmd/internal/cmdline -run ^TestConfig_TrustsReplacedAuthorities$",
	},
	{
		name: "transport/server-name", breaks: "a client accepts the certificate of another server",
		file: "cmd/internal/cmdline/authorities.go",
		edits: []edit{
			{"DNSName: s.ServerName, ", ""},
		},
		tests: "./cmd/internal/cmdline -run ^TestConfig_RejectsCertificateOfOtherServer$",
	},
	{
		name: "transport/no-server-name", breaks: "a client whose dialer does not tell the name of the server accepts any server",
		file: "cmd/internal/cmdline/authorities.go",
		edits: []edit{
			{"s.ServerName == \"\" || ", ""},
		},
		tests: "./cmd/internal/cmdline -run ^TestConfig_RejectsCertificateOfOtherServer$",
	},
	{
		name: "transport/client-authority", breaks: "a peer accepts certificates of an authority that was removed from --ca-file",
		file: "cmd/internal/cmdline/tls.go",
		edits: []edit{
			{"current.ClientCAs, _ = trusted.load()", "_, _ = trusted.load()"},
		},
		tests: "./cmd/internal/cmdline -run ^TestConfig_TrustsReplacedAuthorities$",
	},
	{
		name: "transport/address-name", breaks: "VerifyConnection does not receive the server's name if it is an IP address",
		file: "transport/transport.go",
		edits: []edit{
			{"s.ServerName = name", "_ = name"},
		},
		tests: "./cmd/internal/cmdline -run ^TestConfig_RejectsCertificateOfOtherServer$",
	},
	{
		name: "transport/mixed-schemes", breaks: "endpoints with and without TLS are accepted together",
		file: "transport/transport.go",
		edits: []edit{
			{"case plain != \"\" && secure != \"\":", "case false:"},
		},
		tests: "./transport -run ^TestUsesTLS_RejectsContradictoryAddresses$",
	},
	{
		name: "transport/plain-scheme", breaks: "a scheme without TLS is accepted although options of TLS are set",
		file: "transport/transport.go",
		edits: []edit{
			{"case plain != \"\" && flags:", "case false:"},
		},
		tests: "./transport -run ^TestUsesTLS_RejectsContradictoryAddresses$",
	},
	{
		name: "transport/no-scheme", breaks: "an endpoint without a scheme is accepted together with one that has a scheme",
		file: "transport/transport.go",
		edits: []edit{
			{"case plain != \"\" && unspecified != \"\", secure != \"\" && unspecified != \"\" && !flags:", "case false:"},
		},
		tests: "./transport -run ^TestUsesTLS_RejectsContradictoryAddresses$",
	},
	{
		name: "transport/plain-credentials", breaks: "credentials are sent without TLS to the servers after a local one",
		file: "transport/transport.go",
		edits: []edit{
			{"if !IsLocal(host) {", "if !IsLocal(l.Hosts[0]) {"},
		},
		tests: "./transport -run ^TestLogin_CheckRejectsUnencryptedCredentials$",
	},
	{
		name: "transport/local-host", breaks: "a host whose name begins like that of this machine is local",
		file: "transport/transport.go",
		edits: []edit{
			{"strings.EqualFold(strings.TrimSuffix(host, \".\"), \"localhost\")", "strings.HasPrefix(strings.ToLower(host), \"localhost\")"},
		},
		tests: "./transport -run ^TestLogin_CheckRejectsUnencryptedCredentials$",
	},
	{
		name: "transport/postgres-downgrade", breaks: "the password of PostgreSQL is sent if the server answers that it does not support TLS",
		file: "adapters/changefeed/storeurl/postgres.go",
		edits: []edit{
			{"a.query.Set(sslmode, \"verify-full\")", "a.query.Set(sslmode, \"prefer\")"},
		},
		tests: "./adapters/changefeed/storeurl -run ^TestOpen_PostgresRejectsDowngradeOfTLS$",
	},
	{
		name: "transport/sslmode", breaks: "sslmode=prefer is accepted although options of TLS are set",
		file: "adapters/changefeed/storeurl/postgres.go",
		edits: []edit{
			{"if err := checkSSLMode(&a); err != nil {", "if err := checkSSLMode(&a); false {"},
		},
		tests: "./adapters/changefeed/storeurl -run ^TestCheck_AcceptsProtectedCredentials$",
	},
	{
		name: "transport/redis-password", breaks: "the password of Redis is sent without TLS",
		file: "adapters/changefeed/storeurl/redis.go",
		edits: []edit{
			{"cfg.Password != \"\", cfg.TLSConfig != nil", "false, cfg.TLSConfig != nil"},
		},
		tests: "./adapters/changefeed/storeurl -run ^TestOpen_RejectsInvalidAddress$",
	},
	{
		name: "transport/nats-token", breaks: "the token of NATS is sent without TLS",
		file: "adapters/changefeed/storeurl/nats.go",
		edits: []edit{
			{"user+password != \"\", a.url.Scheme", "password != \"\", a.url.Scheme"},
		},
		tests: "./adapters/changefeed/storeurl -run ^TestOpen_RejectsInvalidAddress$",
	},
	{
		name: "transport/nats-discovery", breaks: "the password of NATS is sent without TLS to servers that a local server names",
		file: "adapters/changefeed/storeurl/nats.go",
		edits: []edit{
			{"if login.OnlyLocal() {", "if false {"},
		},
		tests: "./adapters/changefeed/storeurl -run ^TestOpen_NATSNoCredentialsToDiscoveredServer$",
	},
	{
		name: "transport/redis-maintenance", breaks: "a local server of Redis can move a connection with a password to another server",
		file: "adapters/changefeed/storeurl/redis.go",
		edits: []edit{
			{"if login.OnlyLocal() {", "if false {"},
		},
		tests: "./adapters/changefeed/storeurl -run ^TestOpen_RedisServerCannotMoveClient$",
	},
	{
		name: "transport/mongodb-discovery", breaks: "credentials of MongoDB are sent without TLS to servers that a local server names",
		file: "adapters/changefeed/storeurl/mongodb.go",
		edits: []edit{
			{"if login.OnlyLocal() && !direct {", "if false {"},
		},
		tests: "./adapters/changefeed/storeurl -run ^TestOpen_RejectsInvalidAddress$",
	},
	{
		name: "transport/etcd-password", breaks: "the password of etcd is sent without TLS",
		file: "cmd/elector/etcd.go",
		edits: []edit{
			{"if e.password != \"\" {", "if false {"},
		},
		tests: "./cmd/elector -run ^TestUsage_ErrorsContainExampleOrAdvice$",
	},
	{
		name: "transport/zookeeper-password", breaks: "digest credentials are sent without TLS",
		file: "cmd/elector/zookeeper.go",
		edits: []edit{
			{"if err == nil && z.auth != \"\" {", "if false {"},
		},
		tests: "./cmd/elector -run ^TestUsage_ErrorsContainExampleOrAdvice$",
	},
	{
		name: "transport/shown-name", breaks: "an unknown name of a parameter is shown",
		file: "transport/redact.go",
		edits: []edit{
			{"!slices.Contains(maskedParameters, key):", "name == \"\":"},
		},
		tests: "./transport -run ^TestRedact_HidesPasswords$",
	},
	{
		name: "transport/shown-parameter", breaks: "the values of unknown parameters are shown",
		file: "transport/redact.go",
		edits: []edit{
			{"case shown && plainText", "case plainText"},
		},
		tests: "./transport -run ^TestRedact_HidesPasswords$",
	},
	{
		name: "transport/shown-token", breaks: "the token of NATS is shown",
		file: "transport/redact.go",
		edits: []edit{
			{"password == \"\" && !slices.Contains(usersShown, u.Scheme)", "false"},
		},
		tests: "./transport -run ^TestRedact_HidesPasswords$",
	},
	{
		name: "raftlog/replaced-certificate", breaks: "replaced files of a certificate are not read again",
		file: "cmd/internal/cmdline/replaceable.go",
		edits: []edit{
			{`changed || !equalStates(state, r.states[i])`, `changed`},
		},
		tests: "./cmd/internal/cmdline -run TestConfig_UsesReplacedCertificate",
	},
}
