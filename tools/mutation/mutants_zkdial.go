package main

// zkdialMutants break rules of the dialer of package zkdial.
var zkdialMutants = []mutant{
	{
		name: "zkdial/max-reply", breaks: "a client allocates what a program announces that is not a server",
		file: "zkdial/connect.go",
		edits: []edit{
			{"zk.WithMaxBufferSize(maxReply)(conn)", "_ = maxReply"},
		},
		tests: "./zkdial -run ^TestConnect_RejectsHugeReplyOfForeignServer$",
	},
	{
		name: "zkdial/closing", breaks: "the dialer does not recognize the packet that ends the session",
		file: "zkdial/dialer.go",
		edits: []edit{
			{"if op == opCloseSession {", "if op == 0 {"},
		},
		tests: ". -run ^TestConnClose_EndsLeadershipsAndLocksBeforeSession$",
	},
	{
		name: "zkdial/failed-write", breaks: "the client library receives the error of a write after the handshake",
		file: "zkdial/dialer.go",
		edits: []edit{
			{"		c.abandon(err)\n	}\n	return len(b), nil", "		c.abandon(err)\n		return 0, err\n	}\n	return len(b), nil"},
		},
		tests: "./zkdial -run ^TestDialer_ReconnectsAfterFailedWrite$",
	},
	{
		name: "zkdial/handshake-limit", breaks: "the client library waits for a silent server for several session timeouts",
		file: "zkdial/dialer.go",
		edits: []edit{
			{"if !c.established.Load() && (t.IsZero() || t.After(c.deadline)) {", "if t.IsZero() {"},
		},
		tests: "./zkdial -run ^TestDialer_KeepsSessionDespiteFaultyServer$",
	},
	{
		name: "zkdial/handshake-start", breaks: "the limit for one server begins after the network connection was opened",
		file: "zkdial/dialer.go",
		edits: []edit{
			{"deadline: start.Add(limit)", "deadline: time.Now().Add(start.Sub(start)).Add(limit)"},
		},
		tests: "./zkdial -run ^TestDialer_HandshakeLimitIncludesDial$",
	},
	{
		name: "zkdial/no-zookeeper", breaks: "a server that is not a ZooKeeper server is not reported",
		file: "zkdial/dialer.go",
		edits: []edit{
			{"c.dialer.fail(c.address, errNotZooKeeper)", "c.dialer.outage.close()"},
		},
		tests: "./zkdial -run ^TestOutage_RepeatsThatServerIsNotZooKeeper$",
	},
	{
		name: "zkdial/handshake-grows", breaks: "servers that all answer slowly are given up on after the same time again and again",
		file: "zkdial/dialer.go",
		edits: []edit{
			{"if isTimeout(err) || errors.Is(err, errSilent) {", "if isTimeout(err) {"},
		},
		tests: "./zkdial -run ^TestDialer_ConnectsToSlowServers$",
	},
	{
		name: "zkdial/outage-once", breaks: "each failed attempt is logged",
		file: "zkdial/outage.go",
		edits: []edit{
			{"case now.Before(r.at):", "case false:"},
		},
		tests: "./zkdial -run ^TestOutage_LogsReasonAfterTwoSeconds$",
	},
	{
		name: "zkdial/outage-reason", breaks: "an error that contains the local port or the time is logged for each attempt",
		file: "zkdial/outage.go",
		edits: []edit{
			{`digits.ReplaceAllString(err.Error(), "0")`, "err.Error()"},
		},
		tests: "./zkdial -run ^TestOutage_LimitsWarningsOfVaryingText$",
	},
	{
		name: "zkdial/outage-full", breaks: "nothing is logged after many causes",
		file: "zkdial/outage.go",
		edits: []edit{
			{"		c = cause{}\n", "		return false\n"},
		},
		tests: "./zkdial -run ^TestOutage_LogsAfterManyReasons$",
	},
	{
		name: "zkdial/outage-silent", breaks: "nothing is logged while a server does not answer",
		file: "zkdial/outage.go",
		edits: []edit{
			{"+time.Millisecond, func() { o.fail(server, errWaiting) })", "+time.Millisecond, func() {})"},
		},
		tests: "./zkdial -run ^TestOutage_LogsReasonAfterTwoSeconds$",
	},
}
