package link

import (
	"bytes"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
)

func TestFrameSizes(t *testing.T) {
	for name, identity := range map[string]func(string) Identity{"secret": withSecret, "insecure": insecure} {
		t.Run(name, func(t *testing.T) {
			near, far := tcp(t)
			d, a := linked(t, near, far, identity("a"), identity("b"))
			sizes := []int{0, 1, maxHandshake + 1, writeBuffer - 4, writeBuffer, trust, trust + 1, 5*trust + 3}
			if identity("a").Insecure {
				sizes = append(sizes, MaxFrame)
			}
			written := make(chan error, 1)
			go func() {
				big := bytes.Repeat([]byte("0123456789abcde"), MaxFrame/15+1)
				for _, n := range sizes {
					if err := d.WriteFrame(big[:n]); err != nil {
						written <- err
						return
					}
				}
				written <- nil
			}()
			for _, n := range sizes {
				frame, err := a.ReadFrame()
				require.NoError(t, err)
				require.Len(t, frame, n)
				if n > 0 {
					require.Equal(t, "0123456789abcde"[(n-1)%15], frame[n-1])
				}
			}
			require.NoError(t, soon(t, written))
		})
	}
}

func TestFrameLimit(t *testing.T) {
	near, far := pair(t)
	d, a := linked(t, near, far, insecure("a"), insecure("b"))
	err := d.WriteFrame(make([]byte, MaxFrame+1))
	require.ErrorIs(t, err, api.ErrTooLarge)
	require.NoError(t, d.WriteFrame([]byte("nothing of it was written")))
	frame, err := a.ReadFrame()
	require.NoError(t, err)
	require.Equal(t, "nothing of it was written", string(frame))

	_, err = near.Write([]byte{4, 0, 0, 1}) // 64 MiB and one
	require.NoError(t, err)
	near.Close()
	_, err = a.ReadFrame()
	require.ErrorIs(t, err, api.ErrTooLarge)
}

// TestFrameIsBelievedAsItComes: a length alone takes no memory to speak of.
func TestFrameIsBelievedAsItComes(t *testing.T) {
	near, far := pair(t)
	_, a := linked(t, near, far, insecure("a"), insecure("b"))
	_, err := near.Write([]byte{4, 0, 0, 0, 'x'})
	require.NoError(t, err)
	near.Close()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err = a.ReadFrame()
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2*trust))
}

func TestBufferAndFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t)
		tape := &recorder{Conn: near}
		d, a := linked(t, tape, far, insecure("a"), insecure("b"))
		before := tape.written.Len()
		for range 10 {
			require.NoError(t, d.Buffer([]byte("frame")))
		}
		require.Equal(t, before, tape.written.Len(), "it is written too early")
		require.NoError(t, d.Flush())
		for range 10 {
			frame, err := a.ReadFrame()
			require.NoError(t, err)
			require.Equal(t, "frame", string(frame))
		}
		require.NoError(t, d.Buffer([]byte("first")))
		require.NoError(t, d.WriteFrame([]byte("second")))
		for _, want := range []string{"first", "second"} {
			frame, err := a.ReadFrame()
			require.NoError(t, err)
			require.Equal(t, want, string(frame))
		}
	})
}

func TestCloseUnblocks(t *testing.T) {
	for name, identity := range map[string]func(string) Identity{"secret": withSecret, "insecure": insecure} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pair(t)
				d, a := linked(t, near, far, identity("a"), identity("b"))
				errs := make(chan error, 2)
				go func() {
					_, err := d.ReadFrame()
					errs <- err
				}()
				go func() { errs <- d.WriteFrame(make([]byte, 1<<20)) }() // nobody reads it
				synctest.Wait()
				began := time.Now()
				require.NoError(t, d.Close())
				require.Error(t, <-errs)
				require.Error(t, <-errs)
				require.Zero(t, time.Since(began))
				require.Error(t, d.WriteFrame(nil))
				_, err := a.ReadFrame()
				for err == nil {
					_, err = a.ReadFrame()
				}
				require.Error(t, d.Close())
			})
		})
	}
}

func TestTimeouts(t *testing.T) {
	for name, identity := range map[string]func(string) Identity{"secret": withSecret, "insecure": insecure} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := pair(t)
				d, a := linked(t, near, far, identity("a"), identity("b"))
				d.SetTimeouts(3*time.Second, 2*time.Second)
				go func() {
					for range 5 {
						time.Sleep(2 * time.Second)
						if a.WriteFrame([]byte("x")) != nil {
							return
						}
					}
				}()
				began := time.Now()
				for range 5 {
					_, err := d.ReadFrame()
					require.NoError(t, err)
				}
				require.Equal(t, 10*time.Second, time.Since(began))
				_, err := d.ReadFrame()
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.Equal(t, 13*time.Second, time.Since(began))

				began = time.Now()
				err = d.WriteFrame(make([]byte, 4*piece))
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				require.Equal(t, 2*time.Second, time.Since(began))
			})
		})
	}
}

// TestSlowButNotDead: a large frame may take longer than the timeouts, if it gets on.
func TestSlowButNotDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := pair(t)
		d, a := linked(t, near, far, insecure("a"), insecure("b"))
		d.SetTimeouts(time.Second, time.Second)
		done := make(chan error, 1)
		go func() { done <- d.WriteFrame(make([]byte, 8*piece)) }()
		began := time.Now()
		for range 8 * piece / (64 << 10) {
			time.Sleep(200 * time.Millisecond)
			_, err := io.ReadFull(a.in, make([]byte, 64<<10))
			require.NoError(t, err)
		}
		require.NoError(t, <-done)
		require.Greater(t, time.Since(began), 5*time.Second)
	})
}

// sink takes everything.
type sink struct{ net.Conn }

func (sink) Write(p []byte) (int, error) { return len(p), nil }

func TestWriteFrameDoesNotAllocate(t *testing.T) {
	c := newConn(nil, sink{})
	frame := make([]byte, 300)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		if err := c.WriteFrame(frame); err != nil {
			panic(err)
		}
	}))
}

func TestValidate(t *testing.T) {
	ours := newAuthority(t)
	for name, c := range map[string]struct {
		change func(*Identity)
		says   string
	}{
		"no cluster":            {func(i *Identity) { i.Cluster = "" }, "cluster"},
		"long cluster":          {func(i *Identity) { i.Cluster = strings.Repeat("x", maxText+1) }, "cluster"},
		"no ID":                 {func(i *Identity) { i.ID = "" }, "ID"},
		"long ID":               {func(i *Identity) { i.ID = strings.Repeat("x", maxText+1) }, "ID"},
		"long address":          {func(i *Identity) { i.Addr = strings.Repeat("x", maxText+1) }, "address"},
		"nothing":               {func(i *Identity) { i.TLS = nil }, "one of"},
		"an empty secret":       {func(i *Identity) { i.TLS, i.Secret = nil, []byte{} }, "one of"},
		"insecure and TLS":      {func(i *Identity) { i.Insecure = true }, "cannot be combined"},
		"insecure and a secret": {func(i *Identity) { i.TLS, i.Insecure, i.Secret = nil, true, secret }, "cannot be combined"},
		"TLS 1.2":               {func(i *Identity) { i.TLS.MaxVersion = 0x0303 }, "MaxVersion"},
		"no certificate":        {func(i *Identity) { i.TLS.Certificates = nil }, "certificate"},
		"no look at others":     {func(i *Identity) { i.TLS.InsecureSkipVerify = true }, "InsecureSkipVerify"},
		"the system's CAs":      {func(i *Identity) { i.TLS.ClientCAs = nil }, "ClientCAs"},
	} {
		t.Run(name, func(t *testing.T) {
			self := ours.identity("a")
			require.NoError(t, self.Validate())
			c.change(&self)
			err := self.Validate()
			require.ErrorIs(t, err, api.ErrInvalid)
			require.Contains(t, err.Error(), c.says)
			near, far := pair(t)
			if name != "no look at others" {
				_, err = Accept(t.Context(), far, self)
				require.ErrorIs(t, err, api.ErrInvalid)
			}
			if name != "the system's CAs" {
				_, err = Dial(t.Context(), near, self, "b", PurposeRaft)
				require.ErrorIs(t, err, api.ErrInvalid)
				_, err = near.Write([]byte{1})
				require.Error(t, err, "it is closed")
			}
		})
	}
	near, _ := pair(t)
	_, err := Dial(t.Context(), near, insecure("a"), strings.Repeat("x", maxText+1), PurposeRaft)
	require.ErrorIs(t, err, api.ErrInvalid)
	near, _ = pair(t)
	_, err = Dial(t.Context(), near, insecure("a"), "b", 0)
	require.ErrorIs(t, err, api.ErrInvalid)
}

func TestErrors(t *testing.T) {
	cause := errors.New("the cause")
	err := &RefusedError{Reason: ReasonRemoved, Text: "by entry 7", Err: cause}
	require.ErrorIs(t, err, api.ErrRefused)
	require.ErrorIs(t, err, cause)
	require.Contains(t, err.Error(), "new ID")
	require.Contains(t, err.Error(), "(by entry 7)")
	require.Contains(t, Reason(99).String(), "99")
	for r := range ReasonRunning {
		require.NotContains(t, (r + 1).String(), "does not know")
	}
	require.Equal(t, "raft snapshot client stream Purpose(9)",
		strings.Join([]string{PurposeRaft.String(), PurposeSnapshot.String(), PurposeClient.String(), PurposeStream.String(), Purpose(9).String()}, " "))
}

func TestLongestHelloFits(t *testing.T) {
	long := strings.Repeat("x", maxText)
	longest := Claim{Founding: long[:maxClaim], Instance: long[:maxClaim], Start: math.MaxUint64, Process: long[:maxClaim]}
	g := greeting{Hello: Hello{long, long, long, true, PurposeRaft, longest}, to: long, proof: make([]byte, proofSize)}
	require.LessOrEqual(t, len(g.encode()), maxHandshake)
}

func TestNotHello(t *testing.T) {
	good := (&greeting{to: "b"}).encode()
	for n := range good {
		_, err := decodeGreeting(good[:n])
		require.ErrorIs(t, err, errNotHello, n)
	}
	for name, b := range map[string][]byte{
		"more":      append(bytes.Clone(good), 0),
		"flags":     []byte(strings.Replace(string(good), magic+"\x03\x00\x00", magic+"\x03\x00\x02", 1)),
		"long text": (&greeting{to: strings.Repeat("x", maxText+1)}).encode(),
		"proof":     (&greeting{proof: []byte("x")}).encode(),
		"start":     encode(0, true, "", "", "01", "", "c1", "a", "b", "a:7", ""),
	} {
		_, err := decodeGreeting(b)
		require.ErrorIs(t, err, errNotHello, name)
	}
}

func FuzzHello(f *testing.F) {
	g := greeting{Hello: Hello{"c1", "a", "a:7", true, PurposeRaft, claimed("a")}, to: "b", proof: make([]byte, proofSize)}
	a := answer{reason: ReasonID, id: "b", addr: "b:7", peer: true, claim: claimed("b"), text: "text", proof: make([]byte, proofSize)}
	f.Add(g.encode())
	f.Add(a.encode())
	f.Add((&greeting{}).encode())
	f.Add([]byte(magic + "\x03"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if g, err := decodeGreeting(b); err == nil {
			require.Equal(t, b, g.encode())
		} else {
			require.True(t, errors.Is(err, errNotHello) || errors.Is(err, errVersion), "%v", err)
		}
		if a, err := decodeAnswer(b); err == nil {
			require.Equal(t, b, a.encode())
		}
	})
}
