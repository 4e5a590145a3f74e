package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

// modes are the ways in which two processes may trust each other.
func modes(t testing.TB) map[string]func(id string) Identity {
	ours := newAuthority(t)
	return map[string]func(string) Identity{
		"secret":   withSecret,
		"insecure": insecure,
		"TLS":      ours.identity,
		"both": func(id string) Identity {
			i := ours.identity(id)
			i.Secret = secret
			return i
		},
	}
}

func TestBothSidesKnowEachOther(t *testing.T) {
	for name, identity := range modes(t) {
		for _, want := range []string{"b", ""} {
			for purpose := PurposeRaft; purpose <= PurposeStream; purpose++ {
				t.Run(fmt.Sprintf("%s/%q/%v", name, want, purpose), func(t *testing.T) {
					near, far := pair(t)
					d, a := connect(t, near, far, identity("a"), identity("b"), want, purpose)
					require.NoError(t, d.err)
					require.NoError(t, a.err)
					require.Equal(t, Hello{"c1", "b", "b:7", true, purpose, claimed("b")}, d.conn.Remote())
					require.Equal(t, Hello{"c1", "a", "a:7", true, purpose, claimed("a")}, a.conn.Remote())
					require.NoError(t, d.conn.WriteFrame([]byte("there")))
					require.NoError(t, a.conn.WriteFrame([]byte("back")))
					frame, err := a.conn.ReadFrame()
					require.NoError(t, err)
					require.Equal(t, "there", string(frame))
					frame, err = d.conn.ReadFrame()
					require.NoError(t, err)
					require.Equal(t, "back", string(frame))
				})
			}
		}
	}
}

func TestClientsAreNotPeers(t *testing.T) {
	for name, identity := range modes(t) {
		t.Run(name, func(t *testing.T) {
			client := identity("a")
			client.Peer, client.Addr, client.Claim = false, "", Claim{}
			near, far := pair(t)
			d, a := connect(t, near, far, client, identity("b"), "", PurposeClient)
			require.NoError(t, d.err)
			require.NoError(t, a.err)
			require.Equal(t, Hello{"c1", "a", "", false, PurposeClient, Claim{}}, a.conn.Remote())

			near, far = pair(t)
			_, err := Dial(t.Context(), near, client, "b", PurposeRaft)
			require.ErrorIs(t, err, api.ErrInvalid)
			far.Close()
		})
	}
}

// TestRefusals has everything wrong that can be, in every mode, and both sides say what.
func TestRefusals(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(dials, accepts *Identity)
		want    string
		purpose Purpose
		secret  bool // only where there is one
		reason  Reason
		says    string
	}{
		{name: "secret", change: func(d, _ *Identity) { d.Secret = []byte("another") }, secret: true, reason: ReasonSecret},
		{name: "secret and all else", secret: true, want: "z", reason: ReasonSecret, change: func(d, a *Identity) {
			d.Secret, d.Cluster, d.ID = []byte("another"), "c2", a.ID
		}},
		{name: "a shorter secret", change: func(d, _ *Identity) { d.Secret = secret[:len(secret)-1] }, secret: true, reason: ReasonSecret},
		{name: "cluster", change: func(d, _ *Identity) { d.Cluster = "c2" }, reason: ReasonCluster, says: `"c1"`},
		{name: "a longer cluster", change: func(d, _ *Identity) { d.Cluster = "c11" }, reason: ReasonCluster, says: `"c1"`},
		{name: "ID", want: "z", reason: ReasonID, says: `"b"`},
		{name: "same ID", change: func(d, a *Identity) { d.ID = a.ID }, reason: ReasonSameID},
	} {
		for name, identity := range modes(t) {
			dials, accepts := identity("a"), identity("b")
			if c.secret && len(dials.Secret) == 0 {
				continue
			}
			if c.change != nil {
				c.change(&dials, &accepts)
			}
			want := "b"
			if c.want != "" {
				want = c.want
			}
			t.Run(c.name+"/"+name, func(t *testing.T) {
				near, far := tcp(t)
				if dials.TLS != nil {
					dials.ServerName = "b"
				}
				d, a := connect(t, near, far, dials, accepts, want, PurposeRaft)
				requireReason(t, d.err, c.reason)
				requireReason(t, a.err, c.reason)
				require.ErrorIs(t, d.err, api.ErrRefused)
				require.Contains(t, d.err.Error(), c.says)
				if c.reason == ReasonSecret {
					require.NotContains(t, d.err.Error(), "c1", "who does not know the secret learns nothing")
					require.NotContains(t, d.err.Error(), `"b"@`)
				}
			})
		}
	}
}

// TestPurposes asks in ways that Dial would not: it is the other side that must refuse.
func TestPurposes(t *testing.T) {
	for name, c := range map[string]struct {
		purpose Purpose
		peer    bool
		reason  Reason
	}{
		"a client for raft":     {PurposeRaft, false, ReasonPurpose},
		"a client for snapshot": {PurposeSnapshot, false, ReasonPurpose},
		"a client for a stream": {PurposeStream, false, accepted},
		"none":                  {0, true, ReasonPurpose},
		"unknown":               {5, true, ReasonPurpose},
		"a peer for raft":       {PurposeRaft, true, accepted},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			accepted := accepting(t, far, withSecret("b"))
			a := forge(t, near, func(g *greeting) { g.Purpose, g.Peer = c.purpose, c.peer }, nil)
			require.Equal(t, c.reason, a.reason)
			near.Close()
			if err := accepted().err; c.reason != 0 {
				requireReason(t, err, c.reason)
			}
		})
	}
}

// forge dials as somebody who knows the secret but says what he likes: before makes it part
// of the proof, after does not.
func forge(t *testing.T, raw net.Conn, before, after func(*greeting)) answer {
	t.Helper()
	conn := tls.Client(raw, withSecret("a").clientTLS(raw))
	require.NoError(t, conn.Handshake())
	binding, err := channel(conn)
	require.NoError(t, err)
	g := &greeting{Hello: Hello{Cluster: "c1", ID: "a", Addr: "a:7", Peer: true, Purpose: PurposeRaft}, to: "b"}
	if before != nil {
		before(g)
	}
	g.proof = proveGreeting(secret, g, binding)
	if after != nil {
		after(g)
	}
	c := newConn(raw, conn)
	require.NoError(t, c.WriteFrame(g.encode()))
	frame, err := c.ReadFrame()
	require.NoError(t, err)
	a, err := decodeAnswer(frame)
	require.NoError(t, err)
	return a
}

func TestProofIsOfAllThatIsSaid(t *testing.T) {
	for name, change := range map[string]func(*greeting){
		"nothing":      func(*greeting) {},
		"cluster":      func(g *greeting) { g.Cluster = "c2" },
		"from":         func(g *greeting) { g.ID = "z" },
		"to":           func(g *greeting) { g.to = "" },
		"address":      func(g *greeting) { g.Addr = "z:7" },
		"peer":         func(g *greeting) { g.Peer, g.Purpose = false, PurposeClient },
		"purpose":      func(g *greeting) { g.Purpose = PurposeSnapshot },
		"moved bytes":  func(g *greeting) { g.Cluster, g.ID = "c", "1a" },
		"no proof":     func(g *greeting) { g.proof = nil },
		"proof":        func(g *greeting) { g.proof[31] ^= 1 },
		"proof begins": func(g *greeting) { g.proof[0] ^= 1 },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			done := accepting(t, far, withSecret("b"))
			a := forge(t, near, nil, change)
			near.Close()
			if name == "nothing" {
				require.Equal(t, accepted, a.reason)
				require.NoError(t, done().err)
				return
			}
			require.Equal(t, answer{reason: ReasonSecret}, a, "nothing may be said to a stranger")
			requireReason(t, done().err, ReasonSecret)
		})
	}
}

func TestAcceptsMayRefuse(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		reason Reason
		says   string
	}{
		"a reason": {&RefusedError{Reason: ReasonRemoved, Text: "by entry 7"}, ReasonRemoved, "by entry 7"},
		"wrapped":  {fmt.Errorf("x: %w", &RefusedError{Reason: ReasonPurpose}), ReasonPurpose, ""},
		"another":  {errors.New("not today"), ReasonNotAccepted, "not today"},
		"long":     {errors.New(strings.Repeat("x", 5000)), ReasonNotAccepted, "xxx"},
		"zero":     {&RefusedError{}, ReasonNotAccepted, ""},
		"not sent": {&RefusedError{Reason: ReasonUnproven}, ReasonNotAccepted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := pair(t)
			done := accepting(t, far, withSecret("b"), func(Hello) error { return nil }, func(h Hello) error {
				require.Equal(t, "a", h.ID)
				return c.err
			})
			_, err := Dial(t.Context(), near, withSecret("a"), "b", PurposeRaft)
			requireReason(t, err, c.reason)
			require.Contains(t, err.Error(), c.says)
			requireReason(t, done().err, c.reason)
		})
	}
}

// TestModesDoNotMix: whatever meets whatever, both sides know it in time.
func TestModesDoNotMix(t *testing.T) {
	all := modes(t)
	for dials, x := range all {
		for accepts, y := range all {
			if dials == accepts {
				continue
			}
			t.Run(dials+" to "+accepts, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					began := time.Now()
					near, far := pair(t)
					d, a := connect(t, near, far, x("a"), y("b"), "b", PurposeRaft)
					require.Error(t, d.err)
					require.Error(t, a.err)
					require.Less(t, time.Since(began), 5*time.Second)
					t.Log(d.err)
					t.Log(a.err)
					if dials == "insecure" {
						requireReason(t, d.err, ReasonPlain)
					} else if accepts != "insecure" {
						require.ErrorIs(t, d.err, api.ErrRefused)
					}
				})
			})
		}
	}
}

func TestOtherVersion(t *testing.T) {
	near, far := pair(t)
	done := accepting(t, far, insecure("b"))
	c := newConn(near, near)
	require.NoError(t, c.WriteFrame([]byte(magic+"\x04what comes in version 4")))
	frame, err := c.ReadFrame()
	require.NoError(t, err)
	a, err := decodeAnswer(frame)
	require.NoError(t, err)
	require.Equal(t, answer{reason: ReasonVersion}, a)
	near.Close()
	requireReason(t, done().err, ReasonVersion)

	near, far = pair(t)
	go func() {
		c := newConn(far, far)
		c.ReadFrame()
		c.WriteFrame([]byte(magic + "\x04what comes in version 4"))
	}()
	_, err = Dial(t.Context(), near, insecure("a"), "b", PurposeRaft)
	requireReason(t, err, ReasonVersion)
}

// TestSlowLoris: a byte now and then does not keep a handshake alive.
func TestSlowLoris(t *testing.T) {
	for name, identity := range map[string]func(string) Identity{"secret": withSecret, "insecure": insecure} {
		for _, dials := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/dials %v", name, dials), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					near, far := pair(t)
					// The beginning of what TLS, or a frame, is.
					bytes := []byte{0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3}
					if identity("a").Insecure {
						bytes = []byte{0, 0, 1, 0, 'L', 'E', 'R', 'L', version, 1, 1}
					}
					done := make(chan struct{})
					defer func() { <-done }()
					go func() {
						defer close(done)
						for _, b := range bytes {
							if _, err := far.Write([]byte{b}); err != nil {
								return
							}
							time.Sleep(time.Second)
						}
					}()
					began := time.Now()
					var err error
					if dials {
						_, err = Dial(t.Context(), near, identity("a"), "b", PurposeRaft)
					} else {
						_, err = Accept(t.Context(), near, identity("a"))
					}
					require.Error(t, err)
					require.LessOrEqual(t, time.Since(began), 5*time.Second)
					_, err = near.Write([]byte{1})
					require.Error(t, err, "it is closed")
				})
			})
		}
	}
}

func TestHandshakeEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		for _, identity := range []func(string) Identity{withSecret, insecure} {
			near, _ := pair(t)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
			began := time.Now()
			_, err := Dial(ctx, near, identity("a"), "b", PurposeRaft)
			require.ErrorIs(t, err, cause)
			require.Equal(t, time.Second, time.Since(began))
			cancel()
			near, _ = pair(t)
			ctx, cancel = context.WithTimeoutCause(t.Context(), time.Minute, cause)
			began = time.Now()
			_, err = Accept(ctx, near, identity("a"))
			require.ErrorIs(t, err, errSlow)
			require.Equal(t, 5*time.Second, time.Since(began))
			cancel()
		}
	})
}

// TestLimitBeforeTheOtherSideIsKnown: nobody can have us wait for, or keep, a large frame.
func TestLimitBeforeTheOtherSideIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, dials := range []bool{true, false} {
			near, far := pair(t)
			_, err := far.Write([]byte{0, 0, 0x10, 1}) // 4097 bytes are to come
			require.NoError(t, err)
			began := time.Now()
			if dials {
				_, err = Dial(t.Context(), near, insecure("a"), "b", PurposeRaft)
			} else {
				_, err = Accept(t.Context(), near, insecure("a"))
			}
			require.ErrorIs(t, err, api.ErrTooLarge)
			require.ErrorIs(t, err, api.ErrRefused)
			require.LessOrEqual(t, time.Since(began), lingerTime)
		}
	})
}
