package zktest_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestServer_UsesFakeTimeOfBubble checks that a server that a test starts in a synctest bubble uses the fake time
// of the bubble.
func TestServer_UsesFakeTimeOfBubble(t *testing.T) {
	start := time.Now()
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, events := connect(t, s, 10*time.Second)
		mustCreate(t, c, "/e", "", zk.FlagEphemeral)
		id := c.SessionID()
		time.Sleep(time.Hour)
		require.Equal(t, id, c.SessionID(), "the session has changed within an hour")
		assert.GreaterOrEqual(t, s.Log().Count(zktest.OpPing), 1000, "pings in an hour")
		s.Refuse(true)
		s.DropConnections()
		time.Sleep(11 * time.Second)
		assert.Empty(t, s.Sessions(), "sessions after the timeout")
		s.Refuse(false)
		waitState(t, events, zk.StateExpired)
		waitState(t, events, zk.StateHasSession)
		ok, _, err := c.Exists("/e")
		assert.True(t, !ok && err == nil, "the ephemeral znode after the expiry: %v", ok)
	})
	assert.LessOrEqual(t, time.Since(start), time.Minute, "an hour took")
}

// TestServer_SessionLastsEightHours checks that the session of a connected client does not expire within
// eight hours of fake time.
func TestServer_SessionLastsEightHours(t *testing.T) { idleForEightHours(t) }

// recordingTB records the failures of a test.
type recordingTB struct {
	zktest.TB
	failed, fatal []string
	cleanups      int
}

func (s *recordingTB) Helper() {}

func (s *recordingTB) Cleanup(func()) { s.cleanups++ }

func (s *recordingTB) Errorf(format string, args ...any) {
	s.failed = append(s.failed, fmt.Sprintf(format, args...))
}

func (s *recordingTB) Fatalf(format string, args ...any) {
	s.fatal = append(s.fatal, fmt.Sprintf(format, args...))
}

// TestStart_FailsTestOnError checks that Start and StartEnsemble fail the test on an error and return nil, and
// that Addr fails the test on an error.
func TestStart_FailsTestOnError(t *testing.T) {
	var bad recordingTB
	if s := zktest.Start(&bad, zktest.WithTick(-1)); s != nil || len(bad.fatal) != 1 || bad.cleanups != 0 {
		t.Errorf("Start with an invalid tick: %+v", bad)
	}
	bad = recordingTB{}
	c := zktest.StartEnsemble(&bad, 3, zktest.WithTick(-1))
	assert.True(t, c == nil && len(bad.fatal) == 1 && bad.cleanups == 0, "StartEnsemble with an invalid tick: %+v", bad)
	bad = recordingTB{}
	s := zktest.Start(&bad, zktest.WithAddr("127.0.0.1:-1"))
	defer s.Close()
	addr := s.Addr()
	assert.True(t, addr == "" && len(bad.failed) == 1 && bad.cleanups == 1, "Addr %q: %+v", addr, bad)
}
