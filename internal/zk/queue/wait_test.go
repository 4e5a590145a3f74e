package queue

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// A reply that the event of the contender's znode has preceded is not lost if the contender leaves because
// of the event: the removal of its other znodes waits for it.
func TestNextReply_AfterEventOfOwnZnode(t *testing.T) {
	reply := input(contender.Replied)
	d := &driver{deferred: reply}
	require.Same(t, reply, d.nextReply())
	require.Nil(t, d.deferred)
}
