package zktest_test

import (
	"io"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-leaderelection/leaderelection/zktest"
	"github.com/go-leaderelection/leaderelection/zktest/internal/wire"
)

// send writes requests in one piece. A request appends everything but its xid.
func (c *rawClient) send(t *testing.T, reqs ...func(e *wire.Encoder)) {
	t.Helper()
	var e wire.Encoder
	for i, r := range reqs {
		start := e.Begin()
		e.Int(int32(i + 1))
		r(&e)
		e.End(start)
	}
	if _, err := c.nc.Write(e.B); err != nil {
		t.Fatal(err)
	}
}

func ping(e *wire.Encoder) { e.Int(int32(wire.Ping)) }

func create(path string, data []byte) func(*wire.Encoder) {
	return func(e *wire.Encoder) {
		e.Int(int32(wire.Create))
		e.String(path)
		e.Buffer(data)
		e.ACLs([]wire.ACL{{Perms: 31, Scheme: "world", ID: "anyone"}})
		e.Int(0)
	}
}

// TestPipelinedAnswersDoNotWait: answers are written together, but none of them
// waits for a hook that a later request runs into, or is lost for the packet after it.
func TestPipelinedAnswersDoNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t, zktest.WithMaxPacket(1024))
		for name, set := range map[string]func(zktest.Match, zktest.HookFunc) *zktest.Hook{"before": s.Before, "after": s.After} {
			c := newRawClient(t, s, false)
			c.nc.SetReadDeadline(time.Now().Add(time.Minute))
			release := make(chan struct{})
			set(zktest.Match{Op: zktest.OpCreate, Nth: 1}, func(*zktest.Request) zktest.Verdict {
				<-release
				return zktest.Verdict{}
			})
			synctest.Wait() // the server's writer sleeps
			c.send(t, ping, ping, create("/"+name, nil), ping)
			for i := range 2 {
				if err := c.reply(); err != nil {
					t.Fatalf("%s: answer %d: %v", name, i, err)
				}
			}
			close(release)
			for i := range 2 {
				if err := c.reply(); err != nil {
					t.Fatalf("%s: answer %d: %v", name, 2+i, err)
				}
			}
		}
		c := newRawClient(t, s, false)
		c.send(t, ping, ping, create("/large", make([]byte, 2000)))
		for i := range 2 {
			if err := c.reply(); err != nil {
				t.Fatalf("answer %d before a packet that is too large: %v", i, err)
			}
		}
		if err := c.reply(); err != io.EOF {
			t.Errorf("behind a packet that is too large: %v", err)
		}
	})
}

// TestDelayedAnswersWake has answers fall due just when the writer goes to sleep.
// None may be forgotten.
func TestDelayedAnswersWake(t *testing.T) {
	s := zktest.Start(t)
	s.Delay(zktest.ToClient, 5*time.Microsecond)
	var wg sync.WaitGroup
	for range 32 {
		c := newRawClient(t, s, false)
		c.nc.SetReadDeadline(time.Now().Add(2 * time.Minute))
		wg.Go(func() {
			if err := c.run(2000, 1, func(e *wire.Encoder, i int) { e.Int(int32(i)); ping(e) }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestMultiReadTooLarge: a small packet that asks for more than can be sent closes
// its connection.
func TestMultiReadTooLarge(t *testing.T) {
	s := zktest.Start(t)
	c := newRawClient(t, s, false)
	c.send(t, create("/large", slices.Repeat([]byte("x"), 1_000_000)))
	if err := c.reply(); err != nil {
		t.Fatal(err)
	}
	read := func(n int) func(*wire.Encoder) {
		return func(e *wire.Encoder) {
			e.Int(int32(wire.MultiRead))
			for range n {
				e.Int(int32(wire.GetData))
				e.Bool(false)
				e.Int(-1)
				e.String("/large")
				e.Bool(false)
			}
			e.Int(-1)
			e.Bool(true)
			e.Int(-1)
		}
	}
	other := newRawClient(t, s, false)
	other.send(t, read(10_000))
	if err := other.reply(); err != io.EOF {
		t.Errorf("10 GB: %v", err)
	}
	c.send(t, read(3))
	if err := c.reply(); err != nil {
		t.Errorf("3 MB: %v", err)
	}
}
