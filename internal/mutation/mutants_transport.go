package main

// transportMutants break rules about TLS, and about what is sent to servers.
var transportMutants = []mutant{
	{
		name: "transport/authority", breaks: "a client accepts a server that no authority of --ca-file has certified",
		file: "cmd/internal/tlsfile/authorities.go",
		edits: []edit{
			{"if _, err := s.PeerCertificates[0].Verify(options); err != nil {", "if _, err := s.PeerCertificates[0].Verify(options); false {"},
		},
		tests: "./cmd/internal/tlsfile -run ^TestConfig_ReplacedAuthorities$",
	},
	{
		name: "transport/server-name", breaks: "a client accepts the certificate of another server",
		file: "cmd/internal/tlsfile/authorities.go",
		edits: []edit{
			{"DNSName: s.ServerName, ", ""},
		},
		tests: "./cmd/internal/tlsfile -run ^TestConfig_ServerName$",
	},
	{
		name: "transport/no-server-name", breaks: "a client whose dialer does not tell the name of the server accepts any server",
		file: "cmd/internal/tlsfile/authorities.go",
		edits: []edit{
			{"s.ServerName == \"\" || ", ""},
		},
		tests: "./cmd/internal/tlsfile -run ^TestConfig_ServerName$",
	},
	{
		name: "transport/client-authority", breaks: "a peer accepts certificates of an authority that was removed from --ca-file",
		file: "cmd/internal/tlsfile/tlsfile.go",
		edits: []edit{
			{"current.ClientCAs, _ = clients.load()", "_, _ = clients.load()"},
		},
		tests: "./cmd/internal/tlsfile -run ^TestConfig_ReplacedAuthorities$",
	},
	{
		name: "transport/address-name", breaks: "VerifyConnection does not receive the server's name if it is an IP address",
		file: "internal/tlsclient/tlsclient.go",
		edits: []edit{
			{"s.ServerName = name", "_ = name"},
		},
		tests: "./cmd/internal/tlsfile -run ^TestConfig_ServerName$",
	},
}
