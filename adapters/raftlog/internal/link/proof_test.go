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

// between is a man in the middle: two connections, with a copy in each direction.
func between(t *testing.T, a, b net.Conn) {
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

// TestRelay is the control of TestManInTheMiddle: what passes bytes on unseen is a cable.
func TestRelay(t *testing.T) {
	near, mitmNear := tcp(t)
	mitmFar, far := tcp(t)
	between(t, mitmNear, mitmFar)
	linked(t, near, far, withSecret("a"), withSecret("b"))
}

// TestManInTheMiddle has somebody end TLS on both sides, with certificates that are as good
// as anybody's where only a secret counts, and pass all messages on, proofs included. Only
// that the proofs are of the two connections' different keys keeps him out.
func TestManInTheMiddle(t *testing.T) {
	ours := newAuthority(t)
	for name, identity := range map[string]func(id string) Identity{
		"secret": withSecret,
		"a member without the secret": func(id string) Identity {
			i := ours.identity(id)
			i.Secret, i.ServerName = secret, "b"
			return i
		},
	} {
		t.Run(name, func(t *testing.T) {
			near, mitmNear := tcp(t)
			mitmFar, far := tcp(t)
			cert, err := throwAway()
			require.NoError(t, err)
			if name != "secret" {
				cert = ours.Issue("b") // of the same authority, and stolen
			}
			between(t,
				tls.Server(mitmNear, &tls.Config{Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequestClientCert}),
				tls.Client(mitmFar, &tls.Config{Certificates: []tls.Certificate{cert}, InsecureSkipVerify: true}))
			d, a := connect(t, near, far, identity("a"), identity("b"), "b", PurposeRaft)
			requireReason(t, a.err, ReasonSecret)
			requireReason(t, d.err, ReasonSecret)
		})
	}
}

// TestImpostor answers in the place of a peer, without the secret.
func TestImpostor(t *testing.T) {
	for name, reply := range map[string]func(g *greeting) *answer{
		"no proof":            func(g *greeting) *answer { return &answer{id: "b", peer: true} },
		"the proof it has":    func(g *greeting) *answer { return &answer{id: "b", peer: true, proof: g.proof} },
		"the same, as dialer": func(g *greeting) *answer { return &answer{id: "a", addr: "a:7", peer: true, proof: g.proof} },
		"says it is removed":  func(g *greeting) *answer { return &answer{reason: ReasonRemoved} },
		"a guess": func(g *greeting) *answer {
			return &answer{id: "b", peer: true, proof: bytes.Repeat([]byte{7}, proofSize)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			done := make(chan struct{})
			go func() {
				defer close(done)
				config, err := withSecret("b").serverTLS()
				if err != nil {
					return
				}
				c := newConn(far, tls.Server(far, config))
				frame, err := c.ReadFrame()
				if err != nil {
					return
				}
				if g, err := decodeGreeting(frame); err == nil {
					c.WriteFrame(reply(&g).encode())
				}
			}()
			_, err := Dial(t.Context(), near, withSecret("a"), "b", PurposeRaft)
			<-done
			requireReason(t, err, ReasonUnproven)
		})
	}
}

// recorder keeps what was written to a connection.
type recorder struct {
	net.Conn
	mu      sync.Mutex
	written bytes.Buffer
	read    bytes.Buffer
}

func (r *recorder) Write(p []byte) (int, error) {
	n, err := r.Conn.Write(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.written.Write(p[:n])
	return n, err
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read.Write(p[:n])
	return n, err
}

// TestReplay says again what somebody has said who knows the secret.
func TestReplay(t *testing.T) {
	for name, identity := range modes(t) {
		if name == "insecure" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pair(t)
				tape := &recorder{Conn: near}
				d, _ := linked(t, tape, far, identity("a"), identity("b"))
				require.NoError(t, d.WriteFrame([]byte("do it")))
				near, far = pair(t)
				done := accepting(t, far, identity("b"))
				go io.Copy(io.Discard, near)
				_, err := near.Write(tape.written.Bytes())
				require.NoError(t, err)
				require.ErrorIs(t, done().err, api.ErrRefused)
				near.Close()
			})
		})
	}
	t.Run("inside of TLS", func(t *testing.T) {
		var old greeting
		near, far := pair(t)
		done := accepting(t, far, withSecret("b"))
		forge(t, near, nil, func(g *greeting) { old = *g })
		require.NoError(t, done().err)
		near, far = pair(t)
		done = accepting(t, far, withSecret("b"))
		forge(t, near, nil, func(g *greeting) { *g = old })
		near.Close()
		requireReason(t, done().err, ReasonSecret)
	})
}

// TestEavesdropper sees all bytes, and nothing in them.
func TestEavesdropper(t *testing.T) {
	for name, identity := range modes(t) {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			tape := &recorder{Conn: near}
			dials, accepts := identity("a"), identity("b")
			dials.Cluster, accepts.Cluster = "the cluster's name", "the cluster's name"
			d, a := linked(t, tape, far, dials, accepts)
			require.NoError(t, d.WriteFrame([]byte("what a says")))
			require.NoError(t, a.WriteFrame([]byte("what b says")))
			_, err := d.ReadFrame()
			require.NoError(t, err)
			for text, sent := range map[string]*bytes.Buffer{
				"the cluster's name": &tape.written, "what a says": &tape.written, "what b says": &tape.read,
			} {
				require.Equal(t, name == "insecure", bytes.Contains(sent.Bytes(), []byte(text)), text)
			}
			require.NotContains(t, tape.written.String(), string(secret))
		})
	}
}
