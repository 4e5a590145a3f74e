package main

// commandMutants break rules of the commands elector and raftlog.
var commandMutants = []mutant{
	{
		name: "command/long-name", breaks: "a long name of one candidate makes each line of the status long",
		file: "cmd/elector/status.go",
		edits: []edit{
			{"shortenCell(c.Name), cmp", "cmdline.Printable(c.Name), cmp"},
		},
		tests: "./cmd/elector -run ^TestPrintStatus_ShortensLongCells$",
	},
	{
		name: "command/config-address", breaks: "elector config prints credentials in an address",
		file: "cmd/elector/config.go",
		edits: []edit{
			{"strings.Contains(f.Value.String(), \"@\")", "strings.Contains(f.Name, \"@\")"},
		},
		tests: "./cmd/elector -run ^TestConfig_PrintsFileWithSameSettings$",
	},
	{
		name: "command/leader-escapes", breaks: "the page of the leader contains control characters of other candidates",
		file: "cmd/elector/web.go",
		edits: []edit{
			{"cmdline.WriteJSON(rw, reply)", "json.NewEncoder(rw).Encode(reply)"},
			{"	\"log/slog\"\n", "	\"log/slog\"\n	\"encoding/json\"\n"},
			{"	\"github.com/go-leaderelection/leaderelection/cmd/internal/cmdline\"\n", ""},
		},
		tests: "./cmd/elector -run ^TestPrint_EscapesControlCharacters$",
	},
	{
		name: "command/page-escapes", breaks: "names of other candidates are a part of the page of --listen",
		file: "cmd/elector/page.go",
		edits: []edit{
			{"html.EscapeString(shortenCell(text))", "shortenCell(text)"},
			{"	\"html\"\n", ""},
		},
		tests: "./cmd/elector -run ^TestPage_EscapesTextsOfCandidates$",
	},
	{
		name: "command/page-policy", breaks: "a browser may execute scripts that are not those of the page of --listen",
		file: "cmd/elector/page.go",
		edits: []edit{
			{"; script-src \" + sourceHash(pageScript)", "; script-src 'unsafe-inline'\""},
		},
		tests: "./cmd/elector -run ^TestPage_EscapesTextsOfCandidates$",
	},
	{
		name: "command/page-lists", breaks: "each view of the page of --listen lists the candidates",
		file: "cmd/elector/page.go",
		edits: []edit{
			{"if time.Since(q.last.at) < queueAge+", "if false && time.Since(q.last.at) < queueAge+"},
		},
		tests: "./cmd/elector -cpu 1 -run ^TestPage_SharesListOfCandidatesBetweenViewers$",
	},
	{
		name: "command/page-interrupted", breaks: "a client that disconnects interrupts the list of candidates for the page",
		file: "cmd/elector/page.go",
		edits: []edit{
			{"context.WithoutCancel(ctx), listLimit", "ctx, listLimit"},
		},
		tests: "./cmd/elector -cpu 1 -run ^TestPage_SharesListOfCandidatesBetweenViewers$",
	},
	{
		name: "command/page-changes", breaks: "the changes of the leader need more memory with each one",
		file: "cmd/elector/follower.go",
		edits: []edit{
			{"v.changes[max(0, len(v.changes)-maxChanges):]", "v.changes[:]"},
		},
		tests: "./cmd/elector -cpu 1 -run ^TestPage_ShowsQueue$",
	},
	{
		name: "command/doctor-ensembles", breaks: "elector doctor accepts servers of different ensembles",
		file: "cmd/elector/zookeeper_doctor.go",
		edits: []edit{
			{"case modes > 1:", "case modes > 2:"},
		},
		tests: "./cmd/elector -run ^TestDoctor_AssignsSeverityToFindings$",
	},
	{
		name: "command/doctor-remains", breaks: "elector doctor leaves a znode behind",
		file: "cmd/elector/zookeeper_doctor.go",
		edits: []edit{
			{"_, deleted := readWithLimit(ctx, z, func() (struct{}, error) { return struct{}{}, z.conn.Delete(node, -1) })", "var deleted error"},
		},
		tests: "./cmd/elector -run ^TestDoctor_ReportsFindingsAndLeavesNoZnode$",
	},
	{
		name: "command/doctor-lost-reply", breaks: "elector doctor takes a lost connection for servers without containers",
		file: "cmd/elector/zookeeper_doctor.go",
		edits: []edit{
			{"return newFinding(severityUnknown, \"containers\", \"the servers may", "return newFinding(severityWarning, \"containers\", \"the servers may"},
		},
		tests: "./cmd/elector -run ^TestDoctor_AssignsSeverityToFindings$",
	},
	{
		name: "command/transfer-unreachable", breaks: "elector transfer reports servers that do not answer as a candidate that does not lead in time",
		file: "cmd/elector/transfer.go",
		edits: []edit{
			{"errors.Is(err, context.Cause(ctx)) && !errors.Is(err, leaderelection.ErrUnreachable)", "errors.Is(err, context.Cause(ctx))"},
		},
		tests: "./cmd/elector -run ^TestTransfer_FailsIfServersDoNotAnswer$",
	},
	{
		name: "command/also-token", breaks: "a program does not receive the token of the second backend",
		file: "cmd/elector/also.go",
		edits: []edit{
			{"a.candidate.Store(candidate)", "_ = candidate"},
		},
		tests: "./cmd/elector -run ^TestMigration_RunsOneInstanceAtATime$",
	},
	{
		name: "command/also-grace", breaks: "an instance that uses only the second backend begins while the program of another one still stops",
		file: "cmd/elector/also.go",
		edits: []edit{
			{"grace := timeout + timeout/leaseMargin", "grace := timeout / leaseMargin"},
		},
		tests: "./cmd/elector -run ^TestMigration_WaitsForProgramIfElectionEnds$",
	},
	{
		name: "command/also-same", breaks: "an instance of a migration joins one election twice, by equal addresses",
		file: "cmd/elector/also.go",
		edits: []edit{
			{"case sameElection(s, second):", "case false && sameElection(s, second):"},
		},
		tests: "./cmd/elector -run ^TestMigration_RejectsInvalidFileOfSecondBackend$",
	},
	{
		name: "command/also-same-start", breaks: "an instance of a migration joins an election that both of its stores contain",
		file: "cmd/elector/also.go",
		edits: []edit{
			{"if err := a.checkDifferentElections(checking, first, second); err != nil {", "if err := a.checkDifferentElections(checking, first, second); false {"},
		},
		tests: "./cmd/elector -run ^TestMigration_RejectsSameElectionAtOtherAddress$",
	},
	{
		name: "command/also-same-created", breaks: "a leader in a migration joins an election that it has created by another address",
		file: "cmd/elector/also.go",
		edits: []edit{
			{"if err := a.checkDifferentElections(ctx, first, second); err != nil {", "if err := a.checkDifferentElections(ctx, first, second); false {"},
		},
		tests: "./cmd/elector -run ^TestMigration_RejectsSameElectionAtOtherAddress$",
	},
	{
		name: "command/also-file-election", breaks: "versions 2 and 3 of a migration join different elections, since the file of --also does not name one",
		file: "cmd/elector/also.go",
		edits: []edit{
			{"case !second.keys.Lookup(flagElection).Changed:", "case false:"},
		},
		tests: "./cmd/elector -run ^TestMigration_RejectsInvalidFileOfSecondBackend$",
	},
	{
		name: "command/also-rollout", breaks: "an instance of a migration to a Raft log is not ready before a majority of the peers runs",
		file: "cmd/elector/also.go",
		edits: []edit{
			{"second.start != nil && !met.Load()", "false"},
		},
		tests: "./cmd/elector -run ^TestCombineBackends_ReportsLossOfEitherBackend$",
	},
	{
		name: "command/also-lost", breaks: "an instance of a migration to a Raft log is ready after it has lost the majority of the peers",
		file: "cmd/elector/also.go",
		edits: []edit{
			{"			met.Store(true)\n", "			met.Store(false)\n"},
		},
		tests: "./cmd/elector -run ^TestCombineBackends_ReportsLossOfEitherBackend$",
	},
	{
		name: "command/help-unknown", breaks: "the command help accepts unknown commands",
		file: "cmd/internal/cmdline/cmdline.go",
		edits: []edit{
			{"				if err == nil && found.HasSubCommands() {\n", "				if false {\n"},
		},
		tests: "./cmd/internal/cmdline -run ^TestPrepare_RejectsWrongUsage$",
	},
	{
		name: "command/also-nested", breaks: "a third backend in the file of --also is silently ignored",
		file: "cmd/elector/also.go",
		edits: []edit{
			{"if second.keys.Lookup(key).Changed {", "if false {"},
		},
		tests: "./cmd/elector -run ^TestMigration_RejectsInvalidFileOfSecondBackend$",
	},
	{
		name: "command/also-variables", breaks: "a variable replaces a key of the file of --also in the next version without a warning",
		file: "cmd/elector/also.go",
		edits: []edit{
			{"	second.warnOfVariables()\n", ""},
		},
		tests: "./cmd/elector -run ^TestMigration_WarnsOfVariablesThatOverrideFile$",
	},
	{
		name: "command/also-start", breaks: "the peers of a Raft log to which an election moves run only when their instances lead",
		file: "cmd/elector/also.go",
		edits: []edit{
			{"if second.start != nil {", "if false {"},
		},
		tests: "./cmd/elector -run ^TestMigration_MovesElectionToRaftlog$",
	},
	{
		name: "command/abort-code", breaks: "a process that aborts exits with the code of wrong usage",
		file: "cmd/raftlog/main.go",
		edits: []edit{
			{"debug.SetTraceback(\"crash\")", "debug.SetTraceback(\"all\")"},
		},
		tests: "./cmd/raftlog -run ^TestServe_ExitCodeAllowsRestart$",
	},
	{
		name: "command/writable-file", breaks: "a file with credentials may be changed by all users",
		file: "cmd/internal/cmdline/private.go",
		edits: []edit{
			{"case mode&othersWrite != 0, ", "case "},
		},
		tests: "./cmd/internal/cmdline -run TestCheckPrivate_RejectsFileWritableBySharedGroup",
	},
	{
		name: "command/group-writable-file", breaks: "a file with credentials may be changed by the group",
		file: "cmd/internal/cmdline/private.go",
		edits: []edit{
			{"mode&groupWrite != 0 && !privateGroup", "false"},
		},
		tests: "./cmd/internal/cmdline -run TestCheckPrivate_RejectsFileWritableBySharedGroup",
	},
	{
		name: "command/root-group", breaks: "a file with credentials may be changed by the group of root",
		file: "cmd/internal/cmdline/private.go",
		edits: []edit{
			{"user == group && user != 0", "user == group"},
		},
		tests: "./cmd/internal/cmdline -run TestCheckPrivate_RejectsFileWritableBySharedGroup",
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
		name: "command/common-secret", breaks: "a replaced file makes the secret of clients valid for peers",
		file: "cmd/internal/cmdline/roles.go",
		edits: []edit{
			{"if r.common = common; !common {", "if r.common = common; true {"},
		},
		tests: "./cmd/internal/cmdline -run ^TestRoles_NeedDifferentSecrets$",
	},
	{
		name: "command/file-size", breaks: "a file of a secret is read whatever its size is",
		file: "cmd/internal/cmdline/file.go",
		edits: []edit{
			{"io.LimitReader(r, limit+1)", "io.LimitReader(r, 1<<25)"},
			{"int64(len(text)) > limit {", "false {"},
		},
		tests: "./cmd/internal/cmdline -run ^TestReadFile_RejectsFileThatIsTooLarge$",
	},
	{
		name: "command/named-pipe", breaks: "a command reads a named pipe as an empty configuration file",
		file: "cmd/internal/cmdline/file.go",
		edits: []edit{
			{"!info.Mode().IsRegular() && !(once && isOpened(name))", "false"},
		},
		tests: "./cmd/internal/cmdline -run TestReadFile_RejectsFileThatIsNotRegular",
	},
	{
		name: "command/key-file", breaks: "a key that others can change is accepted",
		file: "cmd/internal/cmdline/certificate.go",
		edits: []edit{
			{"key, warning, err := ReadPrivate(f.Key)", "key, err := ReadFile(f.Key)"},
		},
		tests: "./cmd/internal/cmdline -run TestMonitor",
	},
	{
		name: "command/printable-errors", breaks: "errors of the commands can control the terminal",
		file: "cmd/internal/cmdline/exit.go",
		edits: []edit{
			{`Printable(strings.Join(lines, "; "))`, `strings.Join(lines, "; ")`},
		},
		tests: "./cmd/raftlog -run TestExecute_",
	},
	{
		name: "command/key-twice", breaks: "a configuration file can set a key twice",
		file: "cmd/internal/cmdline/settings.go",
		edits: []edit{
			{`if line, twice := lines[name]; twice {`, `if line, twice := lines[name]; twice && line < 0 {`},
		},
		tests: "./cmd/internal/cmdline -run ^TestSettings_NameLineButNotValueOfInvalidKey$",
	},
	{
		name: "command/value-in-error", breaks: "an error in a configuration file contains a value, which may be a credential",
		file: "cmd/internal/cmdline/settings.go",
		edits: []edit{
			{`key.Value, describeMismatch(err))`, `key.Value, ValueError(err))`},
		},
		tests: "./cmd/internal/cmdline -run ^TestSettings_NameLineButNotValueOfInvalidKey$",
	},
	{
		name: "command/secret-precedence", breaks: "the file of a secret has precedence over the secret of a flag",
		file: "cmd/internal/cmdline/settings.go",
		edits: []edit{
			{`case direct > precedence(file):`, `case false:`},
		},
		tests: "./cmd/internal/cmdline -run ^TestSettings_UseEitherSecretOrItsFile$",
	},
	{
		name: "command/printable-status", breaks: "elector status prints names of others with control characters",
		file: "cmd/elector/status.go",
		edits: []edit{
			{`shortenCell(c.Name), cmp`, `c.Name, cmp`},
		},
		tests: "./cmd/elector -run TestPrint_EscapesControlCharacters",
	},
	{
		name: "command/printable-watch", breaks: "elector watch prints names of others with control characters",
		file: "cmd/elector/watch.go",
		edits: []edit{
			{`cmdline.Printable(text)`, `text`},
		},
		tests: "./cmd/elector -run TestPrint_EscapesControlCharacters",
	},
	{
		name: "command/printable-json", breaks: "JSON contains characters that a terminal could execute",
		file: "cmd/internal/cmdline/printable.go",
		edits: []edit{
			{`e.w.Write(escapeJSON(line))`, `e.w.Write(line)`},
		},
		tests: "./cmd/internal/cmdline -run TestWriteJSON",
	},
	{
		name: "command/name-of-candidate", breaks: "the name of a candidate may contain control characters",
		file: "candidacy/record/record.go",
		edits: []edit{
			{`strings.ContainsFunc(name, unicode.IsControl)`, `strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) && r == 0 })`},
		},
		tests: ". -run TestNewElection_RejectsInvalidOptions",
	},
	{
		name: "command/value-of-candidate", breaks: "the value of a candidate may contain a null character",
		file: "candidacy/record/record.go",
		edits: []edit{
			{`case strings.Contains(value, separator):`, `case false:`},
		},
		tests: ". -run TestNewElection_RejectsInvalidOptions",
	},
	{
		name: "command/control-host", breaks: "a web page can read a dev-server by the name of another host",
		file: "cmd/elector/httpserver.go",
		edits: []edit{
			{`case !isAllowedHost(host, names):`, `case false:`},
		},
		tests: "./cmd/elector -run TestRejectControl",
	},
	{
		name: "command/control-origin", breaks: "a web page can send requests to a dev-server",
		file: "cmd/elector/httpserver.go",
		edits: []edit{
			{`case len(header.Values("Origin")) > 0:`, `case false:`},
		},
		tests: "./cmd/elector -run TestRejectControl",
	},
	{
		name: "command/control-site", breaks: "a web page can request an image of a dev-server",
		file: "cmd/elector/httpserver.go",
		edits: []edit{
			{`case site != "" && site != "none" && site != "same-origin":`, `case false:`},
		},
		tests: "./cmd/elector -run TestRejectControl",
	},
	{
		name: "command/control-header", breaks: "an old browser can send a form to a dev-server",
		file: "cmd/elector/httpserver.go",
		edits: []edit{
			{` && header.Get(controlHeader) == "":`, ` && false:`},
		},
		tests: "./cmd/elector -run TestRejectControl",
	},
	{
		name: "command/control-used", breaks: "the requests of a dev-server are not checked",
		file: "cmd/elector/devserver_control.go",
		edits: []edit{
			{`newHTTPServer(rejectWebPages(f.newHandler(), []string{hostName(address)}), `, `newHTTPServer(f.newHandler(), `},
		},
		tests: "./cmd/elector -run TestDevServer_RefusesRequestsOfWebPages",
	},
	{
		name: "command/listen-host", breaks: "a web page can read the pages of --listen by the name of another host",
		file: "cmd/elector/web.go",
		edits: []edit{
			{`if check && !isAllowedHost(r.Host, names) {`, `if false {`},
		},
		tests: "./cmd/elector -run TestWebServer_RejectsOtherHosts",
	},
	{
		name: "command/listen-loopback", breaks: "the host of requests to a loopback address is not checked",
		file: "cmd/elector/httpserver.go",
		edits: []edit{
			{`loopback || len(given) > 0`, `len(given) > 0`},
		},
		tests: "./cmd/elector -run TestCheckedHosts_ChecksLoopbackAndGivenNames",
	},
	{
		name: "command/variable-of-others", breaks: "a null character in the data of a candidate disables the commands of others",
		file: "cmd/elector/handlers.go",
		edits: []edit{
			{`text, _, _ = strings.Cut(text, "\x00")`, ``},
		},
		tests: "./cmd/elector -run TestFitVariable_RemovesNoMoreThanNecessary",
	},
	{
		name: "command/long-variable-of-others", breaks: "long data of a candidate disables the commands of others",
		file: "cmd/elector/handlers.go",
		edits: []edit{
			{`if len(text) <= maxVariable {`, `if true {`},
		},
		tests: "./cmd/elector -run TestFitVariable_RemovesNoMoreThanNecessary",
	},
	{
		name: "command/reserved-descriptors", breaks: "the end command cannot be started if clients have used all descriptors",
		file: "cmd/internal/child/reserve.go",
		edits: []edit{
			{`if !errors.Is(err, syscall.EMFILE) {`, `if true || !errors.Is(err, syscall.EMFILE) {`},
		},
		tests: "./cmd/internal/child -run TestStart_UsesReservedDescriptors",
	},
	{
		name: "command/reserve-without-listen", breaks: "without --listen no descriptors are reserved for the end command",
		file: "cmd/elector/run.go",
		edits: []edit{
			{"connections := reserveDescriptors()", "connections := maxConnections"},
		},
		tests: "./cmd/elector -run TestRun_ReservesDescriptors",
	},
	{
		name: "command/exit-during-start", breaks: "the exit of a program is reported late if another one starts without descriptors",
		file: "cmd/internal/child/reserve.go",
		edits: []edit{
			{"if !reserve.mu.TryLock() {", "if reserve.mu.Lock(); false {"},
		},
		tests: "./cmd/internal/child -run TestWait_DoesNotWaitForStartOfNextProgram",
	},
	{
		name: "command/readable-memory", breaks: "a program that elector runs can read its credentials",
		file: "cmd/elector/run.go",
		edits: []edit{
			{`if r.settings.hasCredentials() ||`, `if false &&`},
		},
		tests: "./cmd/elector -run TestProtectMemory",
	},
}
