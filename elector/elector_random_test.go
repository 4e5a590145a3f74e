package elector

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection"
)

// chaos is an Elector whose backend and handlers do anything, but do not hang, and what
// must hold all the time.
type chaos struct {
	*world
	mu    sync.Mutex
	r     *rand.Rand
	calm  bool // handlers succeed
	busy  string
	begun *leaderelection.Leadership // for which End is due
	fails int                        // of End, in a row
}

func (c *chaos) n(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.IntN(n)
}

func (c *chaos) enter(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.busy != "" {
		c.Errorf("%s is called while %s runs", name, c.busy)
	}
	c.busy = name
}

// result takes some time, less if ctx is done, and fails at times.
func (c *chaos) result(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(c.n(4)) * 7 * time.Second):
	case <-ctx.Done():
		time.Sleep(time.Duration(c.n(3)) * time.Second)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = ""
	if !c.calm && c.r.IntN(4) == 0 {
		return errBoom
	}
	return nil
}

func (c *chaos) begin(ctx context.Context, l *leaderelection.Leadership) error {
	c.enter("begin")
	if l.Err() != nil {
		c.Errorf("begin is called with a leadership that is over: %v", l.Err())
	}
	if c.begun != nil {
		c.Errorf("begin is called again without an end")
	}
	err := c.result(ctx)
	if err == nil || ctx.Err() != nil {
		c.begun, c.fails = l, 0
	}
	return err
}

func (c *chaos) work(ctx context.Context, l *leaderelection.Leadership) error {
	c.enter("work")
	if c.begun != l {
		c.Errorf("work is called without begin")
	}
	if err := c.result(ctx); err != nil {
		return err
	}
	c.enter("work")
	<-ctx.Done()
	return c.result(ctx)
}

func (c *chaos) end(ctx context.Context, l *leaderelection.Leadership) error {
	c.enter("end")
	if c.begun != l {
		c.Errorf("end is called without begin")
	}
	err := c.result(ctx)
	if c.fails++; c.fails == 11 {
		err = nil
	}
	if err == nil {
		c.begun = nil
	}
	return err
}

func (c *chaos) onError(ctx context.Context, _ *leaderelection.Leadership, _ error) error {
	c.enter("error")
	if c.begun != nil || c.backend.candidates() > 0 && c.backend.now().holds() {
		c.Errorf("error is called before leadership is given up")
	}
	return c.result(ctx)
}

// told is what the backend does next.
func (c *chaos) told() {
	if c.backend.candidates() == 0 {
		return
	}
	now := c.backend.now()
	switch c.n(8) {
	case 0, 1, 2:
		if now.holds() {
			now.loses(leaderelection.ErrLeaseExpired)
			now.leads()
		}
	case 3:
		now.follows()
	case 4:
		now.loses(leaderelection.ErrLeaseExpired)
	case 5:
		now.fails(leaderelection.ErrSessionExpired)
	case 6:
		_ = now.Resign()
	}
}

func TestWhateverHappens(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) {
			c := &chaos{world: newWorld(t), r: rand.New(rand.NewPCG(seed, 3))}
			c.e.Begin, c.e.End, c.e.Error = c.begin, c.end, c.onError
			if seed%2 == 0 {
				c.e.Work = c.work
			}
			c.e.NewCandidate = func(ctx context.Context) (leaderelection.Candidate, error) {
				if c.n(5) == 0 {
					return nil, errBoom
				}
				return c.backend.newCandidate(ctx)
			}
			ctx, stop := context.WithCancel(context.Background())
			go func() {
				defer close(c.done)
				c.err = c.e.Run(ctx)
			}()
			for range 30 {
				c.told()
				c.pass(time.Duration(c.n(12)) * 3 * time.Second)
			}
			if seed%3 != 0 { // stopped in the middle otherwise
				c.mu.Lock()
				c.calm = true
				c.mu.Unlock()
				for range 5 { // whatever is under way comes to its end
					c.pass(time.Hour)
					if c.e.Work == nil && c.e.Current().State != StateLeader && c.backend.now().holds() {
						c.leads()
					}
				}
				if c.e.Work == nil {
					require.Equal(t, StateLeader, c.e.Current().State, "seed %d", seed)
				}
			}
			stop()
			c.pass(time.Hour)
			_ = c.returned()
			require.Nil(t, c.begun, "seed %d", seed)
			if c.backend.candidates() > 0 {
				require.False(t, c.backend.now().holds())
			}
			require.False(t, t.Failed(), "seed %d", seed)
		})
	}
}
