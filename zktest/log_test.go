package zktest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-leaderelection/leaderelection/zktest"
)

// TestLog_KeepsNewestEntries checks that the log keeps only as many entries as WithLogLimit permits: the newest
// ones.
func TestLog_KeepsNewestEntries(t *testing.T) {
	s := zktest.Start(t, zktest.WithLogLimit(10))
	c, _ := connect(t, s, 10*time.Second)
	for i := range 25 {
		mustCreate(t, c, fmt.Sprintf("/n%02d", i), "", 0)
	}
	log := s.Log()
	assert.True(t, len(log) == 10 && log[0].Path == "/n15" && log[9].Path == "/n24", "log\n%v", log)
}
