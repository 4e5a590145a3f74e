package link

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

func TestHandshake_IdentifiesBothSides(t *testing.T) {
	for name, identity := range authenticationModes(t) {
		for _, want := range []string{"b", ""} {
			for purpose := PurposeRaft; purpose <= PurposeStream; purpose++ {
				t.Run(fmt.Sprintf("%s/%q/%v", name, want, purpose), func(t *testing.T) {
					d, a := connect(t, memoryPair, identity("a"), identity("b"), want, purpose)
					require.NoError(t, d.err)
					require.NoError(t, a.err)
					require.Equal(t, Hello{"c1", "b", "b:7", true, purpose, testClaim("b")}, d.conn.Remote())
					require.Equal(t, Hello{"c1", "a", "a:7", true, purpose, testClaim("a")}, a.conn.Remote())
					require.NoError(t, d.conn.WriteFrame([]byte("there")))
					require.NoError(t, a.conn.WriteFrame([]byte("back")))
					requireFrame(t, a.conn, "there")
					requireFrame(t, d.conn, "back")
				})
			}
		}
	}
}

// TestHandshake_ClientHasNoPeerAccess checks that a client can connect as a client, does not receive the
// claim of the peer, and cannot open a connection that is reserved for peers.
func TestHandshake_ClientHasNoPeerAccess(t *testing.T) {
	for name, identity := range authenticationModes(t) {
		t.Run(name, func(t *testing.T) {
			client := asClient(identity("a"))
			d, a := connect(t, memoryPair, client, identity("b"), "", PurposeClient)
			require.NoError(t, d.err)
			require.NoError(t, a.err)
			require.Equal(t, Hello{"c1", "a", "", false, PurposeClient, Claim{}}, a.conn.Remote())
			require.Equal(t, Hello{"c1", "b", "b:7", true, PurposeClient, Claim{}}, d.conn.Remote(), "clients receive no claims")

			near, far := memoryPair(t)
			_, err := Dial(t.Context(), near, client, peerB, PurposeRaft)
			require.ErrorIs(t, err, api.ErrInvalid)
			far.Close()
		})
	}
}

// TestHandshake_ReportsReasonToBothSides checks that both sides return the reason of a rejection,
// whatever the way of authentication.
func TestHandshake_ReportsReasonToBothSides(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(dials, accepts *Identity)
		want    string
		purpose Purpose
		secret  bool // whether the case applies only to authentication by a secret
		reason  Reason
		text    string
	}{
		{name: "secret", change: func(d, _ *Identity) { d.Secret = []byte("another") }, secret: true, reason: ReasonSecret},
		{name: "secret and everything else", secret: true, want: "z", reason: ReasonSecret, change: func(d, a *Identity) {
			d.Secret, d.Cluster, d.ID = []byte("another"), "c2", a.ID
		}},
		{name: "a shorter secret", change: func(d, _ *Identity) { d.Secret = secret[:len(secret)-1] }, secret: true, reason: ReasonSecret},
		{name: "cluster", change: func(d, _ *Identity) { d.Cluster = "c2" }, reason: ReasonCluster, text: `"c1"`},
		{name: "a longer cluster", change: func(d, _ *Identity) { d.Cluster = "c11" }, reason: ReasonCluster, text: `"c1"`},
		{name: "ID", want: "z", reason: ReasonID, text: `"b"`},
		{name: "same ID", change: func(d, a *Identity) { d.ID = a.ID }, reason: ReasonSameID},
	} {
		for name, identity := range authenticationModes(t) {
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
				d, a := connect(t, tcpPair, dials, accepts, want, PurposeRaft)
				requireReason(t, d.err, c.reason)
				requireReason(t, a.err, c.reason)
				require.ErrorIs(t, d.err, api.ErrRefused)
				require.Contains(t, d.err.Error(), c.text)
				if c.reason == ReasonSecret {
					require.NotContains(t, d.err.Error(), "c1", "a process without the secret has learned the name of the cluster")
					require.NotContains(t, d.err.Error(), `"b"@`)
				}
			})
		}
	}
}

// TestAccept_RejectsWrongPurpose checks that Accept rejects purposes that Dial does not send.
func TestAccept_RejectsWrongPurpose(t *testing.T) {
	for name, c := range map[string]struct {
		purpose Purpose
		peer    bool
		reason  Reason
	}{
		"a client for raft":     {PurposeRaft, false, ReasonPurpose},
		"a client for snapshot": {PurposeSnapshot, false, ReasonPurpose},
		"a client for stream":   {PurposeStream, false, accepted},
		"none":                  {0, true, ReasonPurpose},
		"unknown":               {5, true, ReasonPurpose},
		"a peer for raft":       {PurposeRaft, true, accepted},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := memoryPair(t)
			accepted := startAccept(t, far, secretIdentity("b"))
			a := dialForged(t, near, func(g *greeting) { g.hello.Purpose, g.hello.Peer = c.purpose, c.peer }, nil)
			require.Equal(t, c.reason, a.reason)
			near.Close()
			if err := accepted().err; c.reason != 0 {
				requireReason(t, err, c.reason)
			}
		})
	}
}

func TestAccept_CallbacksCanReject(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		reason Reason
		text   string
	}{
		"a reason": {&RefusedError{Reason: ReasonRemoved, Text: "by entry 7"}, ReasonRemoved, "by entry 7"},
		"wrapped":  {fmt.Errorf("x: %w", &RefusedError{Reason: ReasonPurpose}), ReasonPurpose, ""},
		"another":  {errors.New("not today"), ReasonNotAccepted, "not today"},
		"long":     {errors.New(strings.Repeat("x", 5000)), ReasonNotAccepted, "xxx"},
		"zero":     {&RefusedError{}, ReasonNotAccepted, ""},
		"not sent": {&RefusedError{Reason: ReasonUnproven}, ReasonNotAccepted, ""},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := memoryPair(t)
			done := startAccept(t, far, secretIdentity("b"), func(Hello) error { return nil }, func(h Hello) error {
				require.Equal(t, "a", h.ID)
				return c.err
			})
			_, err := Dial(t.Context(), near, secretIdentity("a"), peerB, PurposeRaft)
			requireReason(t, err, c.reason)
			require.Contains(t, err.Error(), c.text)
			requireReason(t, done().err, c.reason)
		})
	}
}

// TestHandshake_FailsBetweenDifferentModes checks that both sides return an error within the time limit
// if their ways of authentication differ.
func TestHandshake_FailsBetweenDifferentModes(t *testing.T) {
	all := authenticationModes(t)
	for dials, x := range all {
		for accepts, y := range all {
			if dials == accepts {
				continue
			}
			t.Run(dials+" to "+accepts, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					start := time.Now()
					d, a := connect(t, memoryPair, x("a"), y("b"), "b", PurposeRaft)
					require.Error(t, d.err)
					require.Error(t, a.err)
					require.Less(t, time.Since(start), 5*time.Second)
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

// TestHandshake_UsesHighestCommonVersion checks that both sides use the highest version of the protocol that
// both support, and that sides without a common version do not connect.
func TestHandshake_UsesHighestCommonVersion(t *testing.T) {
	for name, identity := range authenticationModes(t) {
		for _, test := range []struct {
			dials, accepts Versions
			common         byte // the version that both sides must use; 0 if they have none in common
		}{
			{Versions{4, 4}, Versions{4, 4}, 4},
			{Versions{4, 4}, Versions{4, 5}, 4},
			{Versions{4, 5}, Versions{4, 4}, 4},
			{Versions{4, 5}, Versions{5, 6}, 5},
			{Versions{4, 4}, Versions{5, 6}, 0},
			{Versions{5, 6}, Versions{4, 4}, 0},
		} {
			dials, accepts := identity("a"), identity("b")
			dials.Versions, accepts.Versions = test.dials, test.accepts
			d, a := connect(t, memoryPair, dials, accepts, "b", PurposeRaft)
			if test.common == 0 {
				requireReason(t, d.err, ReasonVersion)
				requireReason(t, a.err, ReasonVersion)
				require.ErrorContains(t, d.err, "the other side supports "+test.accepts.String(), name)
				require.ErrorContains(t, a.err, "the other side supports "+test.dials.String(), name)
				continue
			}
			require.NoError(t, d.err, name)
			require.NoError(t, a.err, name)
			require.Equal(t, []byte{test.common, test.common}, []byte{d.conn.Version(), a.conn.Version()}, name)
		}
	}
}

// TestHandshake_ReportsThatVersionsDiffer checks that both Dial and Accept report that the versions
// differ if the other side uses an early version of the protocol, whose messages contain no range of
// versions.
func TestHandshake_ReportsThatVersionsDiffer(t *testing.T) {
	near, far := memoryPair(t)
	done := startAccept(t, far, insecureIdentity("b"))
	c := newConn(near, near)
	require.NoError(t, c.WriteFrame([]byte(magic+"\x03the content of version 3")))
	frame, err := c.ReadFrame()
	require.NoError(t, err)
	a, err := decodeReply(frame)
	require.NoError(t, err)
	a.content = nil
	require.Equal(t, reply{versions: supported, reason: ReasonVersion}, a)
	near.Close()
	requireReason(t, done().err, ReasonVersion)

	near, far = memoryPair(t)
	go func() {
		c := newConn(far, far)
		c.ReadFrame()
		c.WriteFrame([]byte(magic + "\x03the content of version 3"))
	}()
	_, err = Dial(t.Context(), near, insecureIdentity("a"), peerB, PurposeRaft)
	requireReason(t, err, ReasonVersion)
}

func TestHandshake_TimesOutForSlowSender(t *testing.T) {
	for name, identity := range map[string]func(string) Identity{"secret": secretIdentity, "insecure": insecureIdentity} {
		for _, dials := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/dials %v", name, dials), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					near, far := memoryPair(t)
					// These bytes are a valid beginning of a TLS handshake, or of a frame without TLS, so
					// only the time can make the handshake fail.
					bytes := []byte{0x16, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3}
					if identity("a").Insecure {
						bytes = []byte{0, 0, 1, 0, 'L', 'E', 'R', 'L', supported.Lowest, supported.Highest, 1, 1, 9}
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
					start := time.Now()
					var err error
					if dials {
						_, err = Dial(t.Context(), near, identity("a"), peerB, PurposeRaft)
					} else {
						_, err = Accept(t.Context(), near, identity("a"))
					}
					require.Error(t, err)
					require.LessOrEqual(t, time.Since(start), 5*time.Second)
					_, err = near.Write([]byte{1})
					require.Error(t, err, "the connection is open")
				})
			})
		}
	}
}

func TestHandshake_EndsWhenContextIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("enough")
		for _, identity := range []func(string) Identity{secretIdentity, insecureIdentity} {
			near, _ := memoryPair(t)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
			start := time.Now()
			_, err := Dial(ctx, near, identity("a"), peerB, PurposeRaft)
			require.ErrorIs(t, err, cause)
			require.Equal(t, time.Second, time.Since(start))
			cancel()
			near, _ = memoryPair(t)
			ctx, cancel = context.WithTimeoutCause(t.Context(), time.Minute, cause)
			start = time.Now()
			_, err = Accept(ctx, near, identity("a"))
			require.ErrorIs(t, err, errHandshakeTimeout)
			require.Equal(t, 5*time.Second, time.Since(start))
			cancel()
		}
	})
}

// TestHandshake_RejectsLargeFrame checks that a process cannot send large frames before it is
// authenticated.
func TestHandshake_RejectsLargeFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, dials := range []bool{true, false} {
			near, far := memoryPair(t)
			_, err := far.Write([]byte{0, 0, 0x10, 1}) // the header announces a frame of 4097 bytes
			require.NoError(t, err)
			start := time.Now()
			if dials {
				_, err = Dial(t.Context(), near, insecureIdentity("a"), peerB, PurposeRaft)
			} else {
				_, err = Accept(t.Context(), near, insecureIdentity("a"))
			}
			require.ErrorIs(t, err, ErrFrameTooLarge)
			require.NotErrorIs(t, err, api.ErrTooLarge)
			require.ErrorIs(t, err, api.ErrRefused)
			require.LessOrEqual(t, time.Since(start), lingerTimeout)
		}
	})
}
