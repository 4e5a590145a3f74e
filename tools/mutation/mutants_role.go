package main

// roleMutants break rules about which process may do what at a peer of the Raft log.
var roleMutants = []mutant{
	{
		name: "role/client-as-peer", breaks: "the secret of clients permits a process to act as a peer",
		file: "adapters/raftlog/internal/link/access.go",
		edits: []edit{
			{"case peer && shown == secretOfPeers, !peer && shown == secretOfClients:", "case shown == secretOfPeers && peer, shown == secretOfClients:"},
		},
		tests: "./adapters/raftlog/internal/link -run TestCheckSecret",
	},
	{
		name: "role/peer-as-client", breaks: "the secret of peers is accepted from clients",
		file: "adapters/raftlog/internal/link/access.go",
		edits: []edit{
			{"case peer && shown == secretOfPeers, !peer && shown == secretOfClients:", "case shown == secretOfPeers, !peer && shown == secretOfClients:"},
		},
		tests: "./adapters/raftlog/internal/link -run TestCheckSecret",
	},
	{
		name: "role/no-secret", breaks: "a process without a secret is accepted",
		file: "adapters/raftlog/internal/link/access.go",
		edits: []edit{
			{"case !a.hasSecrets && shown == secretNone:", "case shown == secretNone:"},
		},
		tests: "./adapters/raftlog/internal/link -run TestCheckSecret",
	},
	{
		name: "role/same-secret", breaks: "peers and clients may have the same secret",
		file: "adapters/raftlog/internal/link/identity.go",
		edits: []edit{
			{"case s.contains(true, secret) && s.contains(false, secret):", "case false:"},
		},
		tests: "./adapters/raftlog/internal/link -run TestValidate_RejectsInvalidIdentity",
	},
	{
		name: "role/certificate-of-peer", breaks: "every certificate of the authority permits a process to act as any peer",
		file: "adapters/raftlog/internal/link/access.go",
		edits: []edit{
			{"if isCertificateOf(c, h.ID, addrs, a.serverName) {", "if isCertificateOf(c, h.ID, addrs, a.serverName) || h.Peer {"},
		},
		tests: "./adapters/raftlog/internal/link -run TestCheckCertificate",
	},
	{
		name: "role/claimed-address", breaks: "a process chooses the address that its certificate must contain",
		file: "adapters/raftlog/internal/link/access.go",
		edits: []edit{
			{`case len(addrs) > 0 || a.serverName != "":`, `case a.serverName != "":`},
		},
		tests: "./adapters/raftlog/internal/link -run TestCheckCertificate",
	},
	{
		name: "role/allowed-names", breaks: "the names of certificates are not restricted",
		file: "adapters/raftlog/internal/link/access.go",
		edits: []edit{
			{"case len(names) > 0 && !hasName(c, names):", "case false:"},
		},
		tests: "./adapters/raftlog/internal/link -run TestCheckCertificate",
	},
	{
		name: "role/names-of-clients", breaks: "the names of peers' certificates are also those of clients if these have their own",
		file: "adapters/raftlog/internal/link/access.go",
		edits: []edit{
			{"		names = a.clientNames\n", "		names = append(a.clientNames, a.peerNames...)\n"},
		},
		tests: "./adapters/raftlog/internal/link -run TestCheckCertificate",
	},
	{
		name: "role/unknown-peer", breaks: "a client can claim a name of its certificate as the ID of a new peer",
		file: "adapters/raftlog/internal/link/access.go",
		edits: []edit{
			{"	default:\n		// Reject the peer, because", "	case false:\n		// Reject the peer, because"},
		},
		tests: "./adapters/raftlog/internal/link -run TestCheckCertificate",
	},
	{
		name: "role/certificate-checked", breaks: "the certificate of a process is not checked",
		file: "adapters/raftlog/internal/link/handshake.go",
		edits: []edit{
			{"if reason, text := checkCertificate(); reason != accepted {", "if reason, text := checkCertificate(); false {"},
		},
		tests: "./adapters/raftlog/internal/link -run TestHandshake_RejectsCertificateOfAnotherPeer",
	},
	{
		name: "role/unproven-text", breaks: "the text of a process that has not proven to be a peer is shown",
		file: "adapters/raftlog/internal/link/handshake.go",
		edits: []edit{
			{"return nil, &RefusedError{Reason: r.reason} // drop the text, because any process can have written it", "return nil, &RefusedError{Reason: r.reason, Text: r.text}"},
		},
		tests: "./adapters/raftlog/internal/link -run TestDial_DropsTextOfUnauthenticatedServer",
	},
	{
		name: "role/unproven", breaks: "a refusal that is not proven counts as one of a peer",
		file: "adapters/raftlog/internal/link/handshake.go",
		edits: []edit{
			{"return nil, &RefusedError{Reason: r.reason} // drop the text, because any process can have written it", "return nil, &RefusedError{Reason: r.reason, Proven: true}"},
		},
		tests: "./adapters/raftlog/internal/link -run TestDial_DropsTextOfUnauthenticatedServer",
	},
	{
		name: "role/removed-secret", breaks: "a connection remains after its secret was removed",
		file: "adapters/raftlog/internal/transport/transport.go",
		edits: []edit{
			{"ok && !conn.IsAuthenticatedBy(valid)", "ok && false && !conn.IsAuthenticatedBy(valid)"},
		},
		tests: "./adapters/raftlog/internal/transport -run TestSecrets_RemovedSecretClosesConnections",
	},
	{
		name: "role/stranger", breaks: "messages of processes that are not members reach the engine",
		file: "adapters/raftlog/internal/core/receive.go",
		edits: []edit{
			{"if !c.senders.acceptsFrame(c, from, frame[0]) {", "if !c.senders.acceptsFrame(c, from, frame[0]) && frame[0] != frameRaft {"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSenders_MessagesOfNonMemberHaveNoEffect",
	},
	{
		name: "role/stated-members", breaks: "the members that a stranger states are accepted",
		file: "adapters/raftlog/internal/core/senders.go",
		edits: []edit{
			{"kind == frameAnnounce || kind == frameAskMembers", "kind == frameAnnounce || kind == frameMembers || kind == frameAskMembers"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSenders_MessagesOfNonMemberHaveNoEffect",
	},
	{
		name: "role/announced-instances", breaks: "a stranger states which directory belongs to a peer",
		file: "adapters/raftlog/internal/core/admission.go",
		edits: []edit{
			{"if c.senders.isMember(c, from) {", "if true {"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSenders_MessagesOfNonMemberHaveNoEffect",
	},
	{
		name: "role/unknown-leader", breaks: "a peer does not accept entries of a leader that its log does not contain",
		file: "adapters/raftlog/internal/core/senders.go",
		edits: []edit{
			{"	if m.Index > s.stated.Index {", "	if false {"},
		},
		tests: "./adapters/raftlog/internal/core -run TestSenders_UnknownLeaderIsAccepted",
	},
	{
		name: "role/stored-claim", breaks: "a claim is stored although the connection does not carry the Raft protocol",
		file: "adapters/raftlog/knownpeers.go",
		edits: []edit{
			{"case h.Purpose != link.PurposeRaft:", "case false:"},
		},
		tests: "./adapters/raftlog -run TestAcceptHandshake_RecordsOnlyMembers",
	},
	{
		name: "role/claim-of-stranger", breaks: "the claim of a process that is not a member is stored",
		file: "adapters/raftlog/knownpeers.go",
		edits: []edit{
			{"	case n.isMember(h.ID):", "	case true:"},
		},
		tests: "./adapters/raftlog -run TestAcceptHandshake_RecordsOnlyMembers",
	},
	{
		name: "role/admitted", breaks: "a process that was connected before its ID became a member's can keep another directory",
		file: "adapters/raftlog/internal/transport/session.go",
		edits: []edit{
			{"if err := t.cfg.Accepts(s.conn.Remote()); err != nil {", "if err := t.cfg.Accepts(s.conn.Remote()); err != nil && s == nil {"},
		},
		tests: "./adapters/raftlog/internal/transport -run TestCheckPeers",
	},
	{
		name: "role/ended-by-stranger", breaks: "elector ends because of any refusal",
		file: "cmd/elector/raftlog_peer.go",
		edits: []edit{
			{"case c.Misconfigured:", "case errors.Is(c.Err, api.ErrRefused):"},
		},
		tests: "./cmd/elector -run TestRaftlog_PeerSurvivesStrangersAtPeerAddresses",
	},
	{
		name: "role/compact-file", breaks: "a peer installs a snapshot that another user has written",
		file: "adapters/raftlog/internal/disk/private.go",
		edits: []edit{
			{"case owner != self && owner != 0:", "case false:"},
		},
		tests: "./adapters/raftlog/internal/disk -run TestCheckPrivate",
	},
}
