package main

// raftlogClientMutants break rules of the connections of clients of the Raft log.
var raftlogClientMutants = []mutant{
	{
		name: "raftlog/foreign-frame", breaks: "a client takes a foreign server at one address for an answer of the log",
		file: "adapters/raftlog/internal/link/conn.go",
		edits: []edit{
			{"limit is %d\", ErrFrameTooLarge, size, c.limits.Max)", "limit is %d\", api.ErrTooLarge, size, c.limits.Max)"},
		},
		tests: "./adapters/raftlog/client -run ^TestConnect_RequiresSecret$",
	},
	{
		name: "raftlog/client-memory", breaks: "the requests of one client occupy any amount of memory",
		file: "adapters/raftlog/internal/rpc/limits.go",
		edits: []edit{
			{"{more.memory, sum.memory, limit.memory,", "{0, sum.memory, limit.memory,"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestCheckClient",
	},
	{
		name: "raftlog/client-address", breaks: "one address can use up the limits of all clients",
		file: "adapters/raftlog/internal/rpc/limits.go",
		edits: []edit{
			{"if err := address.checkIncrease(more, maxAddressLoad, \"one address\"); err != nil {", "if err := address.checkIncrease(load{}, maxAddressLoad, \"one address\"); err != nil {"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestCheckClient",
	},
	{
		name: "raftlog/client-share", breaks: "clients that use up the limits prevent the updates of others",
		file: "adapters/raftlog/internal/rpc/limits.go",
		edits: []edit{
			{"if more.calls > 0 && own.calls < ownCalls ||", "if false ||"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestCheckClient",
	},
	{
		name: "raftlog/client-release", breaks: "what a connection has occupied remains occupied",
		file: "adapters/raftlog/internal/rpc/limits.go",
		edits: []edit{
			{"	c.addToLoads(load{}.subtract(c.own))", "	c.change(load{})"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestUsage",
	},
	{
		name: "raftlog/client-replies", breaks: "replies that are not read occupy any amount of memory",
		file: "adapters/raftlog/internal/rpc/server.go",
		edits: []edit{
			{"len(body) > freeReply {", "false {"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_LimitsReplies",
	},
	{
		name: "raftlog/client-connections", breaks: "one client opens any number of connections",
		file: "adapters/raftlog/internal/rpc/server.go",
		edits: []edit{
			{"load{conns: 1})", "load{})"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_LimitsConnections",
	},
	{
		name: "raftlog/frame-stall", breaks: "a connection waits without a limit for the rest of a frame",
		file: "adapters/raftlog/internal/link/conn.go",
		edits: []edit{
			{"case c.inPart && c.limits.Stall > 0:", "case false:"},
		},
		tests: "./adapters/raftlog/internal/link -run TestConn_EnforcesFrameLimits",
	},
	{
		name: "raftlog/frame-memory", breaks: "memory for a frame is not reserved",
		file: "adapters/raftlog/internal/link/conn.go",
		edits: []edit{
			{"case reserves && got == skippedHead:", "case false:"},
		},
		tests: "./adapters/raftlog/internal/link -run TestConn_EnforcesFrameLimits",
	},
	{
		name: "raftlog/rpc-sent", breaks: "a request that may have been sent counts as not sent",
		file: "adapters/raftlog/internal/rpc/conn.go",
		edits: []edit{
			{`		o.queue[n].taken = true
`, ""},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestCaller_ReportsUnknownOutcomeAfterConnectionLoss",
	},
	{
		name: "raftlog/rpc-unsent", breaks: "a request that was certainly not sent may have been applied",
		file: "adapters/raftlog/internal/rpc/caller.go",
		edits: []edit{
			{"k.changesState() && c.out.isTaken(&k.request)", "k.changesState()"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestCaller_ReportsUnknownOutcomeOnlyIfSent",
	},
	{
		name: "raftlog/rpc-lost-client", breaks: "a stream of a lost client does not end",
		file: "adapters/raftlog/internal/rpc/serverstream.go",
		edits: []edit{
			{"conn.SetTimeouts(streamSilence, 0)", "conn.SetTimeouts(0, 0)"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_EndsStreamOfSilentClient",
	},
	{
		name: "raftlog/rpc-slow-client", breaks: "a stream of a slow client ends",
		file: "adapters/raftlog/internal/rpc/serverstream.go",
		edits: []edit{
			{"conn.SetTimeouts(streamSilence, 0)", "conn.SetTimeouts(streamSilence, streamSilence)"},
		},
		tests: "./adapters/raftlog -run TestServeClient_ClosesConnectionOfLostClient",
	},
	{
		name: "raftlog/rpc-streams", breaks: "a client has any number of streams",
		file: "adapters/raftlog/internal/rpc/serverstream.go",
		edits: []edit{
			{"load{conns: 1, streams: 1})", "load{conns: 1})"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_LimitsStreams",
	},
	{
		name: "raftlog/rpc-pings", breaks: "a client sends nothing on a stream",
		file: "adapters/raftlog/internal/rpc/stream.go",
		edits: []edit{
			{"		case <-ticker.C:\n", ""},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_StopsReadingForUnreadStream",
	},
	{
		name: "raftlog/client-idle", breaks: "a connection for calls that is not used remains open",
		file: "adapters/raftlog/internal/rpc/server.go",
		edits: []edit{
			{"conn.SetTimeouts(callsIdle, callsStall)", "conn.SetTimeouts(0, callsStall)"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_ClosesIdleAndRejectedConnections",
	},
	{
		name: "raftlog/client-rejected", breaks: "any number of rejected connections waits for its first request",
		file: "adapters/raftlog/internal/rpc/server.go",
		edits: []edit{
			{"\tdefault:\n\t\tconn.Close()\n\t\treturn reason\n", "\tdefault:\n"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestServer_ClosesIdleAndRejectedConnections",
	},
	{
		name: "raftlog/client-small", breaks: "a pending call prevents small updates while the limits are used up",
		file: "adapters/raftlog/internal/rpc/limits.go",
		edits: []edit{
			{"own.memory+more.memory <= freeFrame", "own.memory == 0 && more.memory <= freeFrame"},
		},
		tests: "./adapters/raftlog/internal/rpc -run TestCheckClient",
	},
	{
		name: "raftlog/client-joining", breaks: "clients prevent a peer from joining",
		file: "adapters/raftlog/service.go",
		edits: []edit{
			{"server = n.joining", "_ = n.joining"},
		},
		tests: "./adapters/raftlog -run TestServeClient_DoesNotBlockJoiningPeer",
	},
}
