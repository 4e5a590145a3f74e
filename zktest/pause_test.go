package zktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestPause_LosesNoRequestAndNoSession checks that no requests are lost, and no sessions expire, during a pause.
func TestPause_LosesNoRequestAndNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := zktest.Start(t)
		c, _ := connect(t, s, 6*time.Second)
		mustCreate(t, c, "/e", "", zk.FlagEphemeral)
		s.Pause()
		done := make(chan error, 1)
		go func() {
			_, err := c.Create("/a", nil, 0, openACL)
			done <- err
		}()
		time.Sleep(time.Second)
		s.Resume()
		assert.NoError(t, <-done, "a short pause")
		s.Pause()
		time.Sleep(time.Minute)
		assert.Len(t, s.Sessions(), 1, "a session has expired during the pause")
		s.Resume()
		time.Sleep(30 * time.Second)
		if _, stat, err := c.Exists("/a"); err != nil || stat == nil {
			t.Errorf("Exists after a long pause returns: %v", err)
		}
	})
}
