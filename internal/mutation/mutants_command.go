package main

// commandMutants break rules of the commands elector and raftlog.
var commandMutants = []mutant{
	{
		name: "command/writable-file", breaks: "a file with credentials may be changed by all users",
		file: "cmd/internal/cmdline/private.go",
		edits: []edit{
			{"groupAndOthersWrite, othersRead = 0o022, 0o004", "groupAndOthersWrite, othersRead = 0o020, 0o004"},
		},
		tests: "./cmd/internal/cmdline -run TestReadPrivate",
	},
	{
		name: "command/group-writable-file", breaks: "a file with credentials may be changed by the group",
		file: "cmd/internal/cmdline/private.go",
		edits: []edit{
			{"groupAndOthersWrite, othersRead = 0o022, 0o004", "groupAndOthersWrite, othersRead = 0o002, 0o004"},
		},
		tests: "./cmd/internal/cmdline -run TestReadPrivate",
	},
	{
		name: "command/readable-file", breaks: "there is no warning about credentials that all users can read",
		file: "cmd/internal/cmdline/private.go",
		edits: []edit{
			{"case mode&othersRead != 0:", "case false:"},
		},
		tests: "./cmd/internal/cmdline -run TestReadPrivate",
	},
	{
		name: "command/key-file", breaks: "a key that others can change is accepted",
		file: "cmd/internal/tlsfile/certificate.go",
		edits: []edit{
			{"cmdline.ReadPrivate(f.Key)", `os.ReadFile(f.Key)`},
			{"key, warning, err := os", "key, err := os"},
			{"readCertificate() (pair tls.Certificate, warning string, err error) {", "readCertificate() (pair tls.Certificate, warning string, err error) {\n	_ = cmdline.ReadPrivate"},
		},
		tests: "./cmd/internal/tlsfile -run TestMonitor",
	},
}
