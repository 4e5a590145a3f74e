package rpc

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOutbox_WritesUrgentMessagesFirst checks that a cancellation is written before queued updates,
// which can be large.
func TestOutbox_WritesUrgentMessagesFirst(t *testing.T) {
	o := newOutbox()
	first, second, cancel := &outgoingMessage{frame: []byte{1}}, &outgoingMessage{frame: []byte{2}}, &outgoingMessage{frame: []byte{3}}
	o.addMessage(first)
	o.addMessage(second)
	o.addUrgent(cancel)
	require.Equal(t, []*outgoingMessage{cancel, first, second}, o.nextBatch(nil))
	require.Empty(t, o.nextBatch(nil))
	require.True(t, o.isTaken(second))
}
