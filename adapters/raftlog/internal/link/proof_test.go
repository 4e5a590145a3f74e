package link

import (
	"bytes"
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// startRelay copies all bytes between two connections in both directions.
func startRelay(t *testing.T, a, b net.Conn) {
	var group sync.WaitGroup
	for _, c := range [][2]net.Conn{{a, b}, {b, a}} {
		group.Go(func() {
			io.Copy(c[0], c[1])
			c[0].Close()
			c[1].Close()
		})
	}
	t.Cleanup(func() {
		a.Close()
		b.Close()
		group.Wait()
	})
}

// TestHandshake_SucceedsThroughRelay checks that a handshake succeeds through a relay that does not decrypt the
// connection. So TestProof_DetectsManInTheMiddle does not fail merely because there is a relay.
func TestHandshake_SucceedsThroughRelay(t *testing.T) {
	near, mitmNear := tcpPair(t)
	mitmFar, far := tcpPair(t)
	startRelay(t, mitmNear, mitmFar)
	connectPair(t, pairOf(near, far), secretIdentity("a"), secretIdentity("b"))
}

// TestProof_DetectsManInTheMiddle checks that the proofs depend on the keys of the connection: both
// sides reject a man in the middle, which terminates TLS on both sides and forwards all messages,
// including the proofs.
func TestProof_DetectsManInTheMiddle(t *testing.T) {
	ours := newAuthority(t)
	for name, identity := range map[string]func(id string) Identity{
		"secret": secretIdentity,
		"a member without the secret": func(id string) Identity {
			i := ours.identity(id)
			i.Secret = secret
			return i
		},
	} {
		t.Run(name, func(t *testing.T) {
			near, mitmNear := tcpPair(t)
			mitmFar, far := tcpPair(t)
			cert, err := placeholderCertificate()
			require.NoError(t, err)
			if name != "secret" {
				cert = ours.ca.Issue("b") // the man in the middle has stolen this certificate
			}
			startRelay(t,
				tls.Server(mitmNear, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}),
				tls.Client(mitmFar, &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true}))
			d, a := connect(t, pairOf(near, far), identity("a"), identity("b"), "b", PurposeRaft)
			requireReason(t, a.err, ReasonSecret)
			requireReason(t, d.err, ReasonSecret)
		})
	}
}

// TestProof_DetectsImpostor checks that Dial rejects a process that answers like a peer but does not
// know the secret.
func TestProof_DetectsImpostor(t *testing.T) {
	for name, reply := range map[string]func(g *greeting) *reply{
		"no proof":             func(g *greeting) *reply { return &reply{id: "b", peer: true} },
		"the received proof":   func(g *greeting) *reply { return &reply{id: "b", peer: true, proof: g.proof} },
		"the received message": func(g *greeting) *reply { return &reply{id: "a", addr: "a:7", peer: true, proof: g.proof} },
		"a rejection":          func(g *greeting) *reply { return &reply{reason: ReasonRemoved} },
		"a guess": func(g *greeting) *reply {
			return &reply{id: "b", peer: true, proof: bytes.Repeat([]byte{7}, proofSize)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			requireReason(t, dialImpostor(t, reply), ReasonUnproven)
		})
	}
}

// dialImpostor dials a process that does not know the secret and sends the given reply, and returns the
// error of Dial.
func dialImpostor(t *testing.T, reply func(g *greeting) *reply) error {
	near, far := memoryPair(t)
	var impostor sync.WaitGroup
	impostor.Go(func() {
		config, err := secretIdentity("b").serverTLS()
		if err != nil {
			return
		}
		c := newConn(far, tls.Server(far, config))
		frame, err := c.ReadFrame()
		if err != nil {
			return
		}
		if g, err := decodeGreeting(frame); err == nil {
			r := reply(&g)
			r.versions = supported
			c.WriteFrame(r.encode())
		}
	})
	_, err := Dial(t.Context(), near, secretIdentity("a"), peerB, PurposeRaft)
	impostor.Wait()
	return err
}

// TestProof_DetectsReplay checks that the recorded messages of a process that knows the secret are
// rejected when another process sends them again.
func TestProof_DetectsReplay(t *testing.T) {
	for name, identity := range authenticationModes(t) {
		if name == "insecure" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				recording := &recordingConn{}
				d, _ := connectPair(t, recording.connPair, identity("a"), identity("b"))
				require.NoError(t, d.WriteFrame([]byte("a frame")))
				near, far := memoryPair(t)
				done := startAccept(t, far, identity("b"))
				go io.Copy(io.Discard, near)
				_, err := near.Write(recording.written.Bytes())
				require.NoError(t, err)
				require.ErrorIs(t, done().err, api.ErrRefused)
				near.Close()
			})
		})
	}
	t.Run("inside TLS", func(t *testing.T) {
		var old greeting
		near, far := memoryPair(t)
		done := startAccept(t, far, secretIdentity("b"))
		dialForged(t, near, nil, func(g *greeting) { old = *g })
		require.NoError(t, done().err)
		near, far = memoryPair(t)
		done = startAccept(t, far, secretIdentity("b"))
		dialForged(t, near, nil, func(g *greeting) { *g = old })
		near.Close()
		requireReason(t, done().err, ReasonSecret)
	})
}

// TestProof_ConnectionIsEncrypted checks that the bytes on the network contain neither names nor frames
// nor the secret in plain text.
func TestProof_ConnectionIsEncrypted(t *testing.T) {
	for name, identity := range authenticationModes(t) {
		t.Run(name, func(t *testing.T) {
			recording := &recordingConn{}
			dials, accepts := identity("a"), identity("b")
			dials.Cluster, accepts.Cluster = "the cluster's name", "the cluster's name"
			d, a := connectPair(t, recording.connPair, dials, accepts)
			require.NoError(t, d.WriteFrame([]byte("frame of a")))
			require.NoError(t, a.WriteFrame([]byte("frame of b")))
			_, err := d.ReadFrame()
			require.NoError(t, err)
			for text, sent := range map[string]*bytes.Buffer{
				"the cluster's name": &recording.written, "frame of a": &recording.written, "frame of b": &recording.read,
			} {
				require.Equal(t, name == "insecure", bytes.Contains(sent.Bytes(), []byte(text)), text)
			}
			require.NotContains(t, recording.written.String(), string(secret))
		})
	}
}

// TestProof_CoversClaim checks that changing any part of a claim invalidates the proof.
func TestProof_CoversClaim(t *testing.T) {
	channel := []byte("channel")
	g := &greeting{versions: supported, hello: Hello{"c1", "a", "a:7", true, PurposeRaft, testClaim("a")}, wantedID: "b"}
	a := &reply{versions: supported, id: "b", peer: true, claim: testClaim("b")}
	dials := greetingProof(secret, g.encodeContent(), channel)
	accepts := replyProof(secret, g.encodeContent(), a.encodeContent(), channel)
	for _, change := range []func(*Claim){
		func(c *Claim) { c.Founding += "x" },
		func(c *Claim) { c.Instance += "x" },
		func(c *Claim) { c.Start++ },
		func(c *Claim) { c.Process += "x" },
		func(c *Claim) { c.Founders += "x" },
		func(c *Claim) { c.Founding, c.Instance = c.Founding+c.Instance, "" },
	} {
		other, otherAnswer := *g, *a
		change(&other.hello.Claim)
		change(&otherAnswer.claim)
		require.NotEqual(t, dials, greetingProof(secret, other.encodeContent(), channel))
		require.NotEqual(t, accepts, replyProof(secret, g.encodeContent(), otherAnswer.encodeContent(), channel))
	}
}

// TestProof_CoversGreeting checks that changing any field of a greeting invalidates the proof.
func TestProof_CoversGreeting(t *testing.T) {
	for name, change := range map[string]func(*greeting){
		"nothing":      func(*greeting) {},
		"cluster":      func(g *greeting) { g.hello.Cluster = "c2" },
		"from":         func(g *greeting) { g.hello.ID = "z" },
		"to":           func(g *greeting) { g.wantedID = "" },
		"address":      func(g *greeting) { g.hello.Addr = "z:7" },
		"peer":         func(g *greeting) { g.hello.Peer, g.hello.Purpose = false, PurposeClient },
		"versions":     func(g *greeting) { g.versions.Highest++ },
		"purpose":      func(g *greeting) { g.hello.Purpose = PurposeSnapshot },
		"moved bytes":  func(g *greeting) { g.hello.Cluster, g.hello.ID = "c", "1a" },
		"no proof":     func(g *greeting) { g.proof = nil },
		"proof":        func(g *greeting) { g.proof[31] ^= 1 },
		"proof begins": func(g *greeting) { g.proof[0] ^= 1 },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := memoryPair(t)
			done := startAccept(t, far, secretIdentity("b"))
			a := dialForged(t, near, nil, change)
			near.Close()
			if name == "nothing" {
				require.Equal(t, accepted, a.reason)
				require.NoError(t, done().err)
				return
			}
			require.Equal(t, reply{versions: supported, reason: ReasonSecret}, a, "the reply to a process without the secret contains details")
			requireReason(t, done().err, ReasonSecret)
		})
	}
}

// dialForged sends a forged greeting, and returns the reply. The function before changes the greeting
// before its proof is computed, and the function after changes it afterwards.
func dialForged(t *testing.T, raw net.Conn, before, after func(*greeting)) reply {
	t.Helper()
	conn := tls.Client(raw, secretIdentity("a").clientTLS(raw, peerB.Addr))
	require.NoError(t, conn.Handshake())
	binding, err := channelBinding(conn)
	require.NoError(t, err)
	g := &greeting{versions: supported, hello: Hello{Cluster: "c1", ID: "a", Addr: "a:7", Peer: true, Purpose: PurposeRaft}, wantedID: "b"}
	if before != nil {
		before(g)
	}
	own := secret
	if !g.hello.Peer {
		own = clientSecret
	}
	g.proof = greetingProof(own, g.encodeContent(), binding)
	if after != nil {
		after(g)
	}
	c := newConn(raw, conn)
	require.NoError(t, c.WriteFrame(g.encode()))
	frame, err := c.ReadFrame()
	require.NoError(t, err)
	a, err := decodeReply(frame)
	require.NoError(t, err)
	a.content = nil
	return a
}
