package queue

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// TestRotation_PredictsPredecessors checks that clients that take turns predict the names of their predecessors
// after three rounds, until the order of the clients changes.
func TestRotation_PredictsPredecessors(t *testing.T) {
	var clients [3]Rotation
	number := int32(0)
	name := func(r *Rotation) string {
		number++
		return contender.CuratorLock.NamePrefix(r.newGUID()) + fmt.Sprintf("%010d", number)
	}
	last := ""
	join := func(i int) (predicted string) {
		own := name(&clients[i])
		predicted = clients[i].predict(own, 2, nil)
		clients[i].observe(last)
		last = own
		return predicted
	}
	for round := range 5 {
		for i := range clients {
			predecessor := last
			if predicted := join(i); round > 2 {
				require.Equal(t, predecessor, predicted)
			}
		}
	}
	join(1) // the second client joins, although it is the turn of the first client
	predecessor := last
	predicted := join(0)
	require.NotEmpty(t, predicted)
	require.NotEqual(t, predecessor, predicted)
	require.Empty(t, join(0), "the last prediction was wrong")
	require.NotEmpty(t, clients[2].predict(name(&clients[2]), 2, nil))
	clients[2].observe("")
	require.Empty(t, clients[2].predict(name(&clients[2]), 2, nil), "there was no predecessor")
}

// TestRotation_PredictsNothingBehindOneContender checks that Rotation predicts no name for a contender with only
// one contender before it, because a list of the queue is then better than a prediction.
func TestRotation_PredictsNothingBehindOneContender(t *testing.T) {
	var r, other Rotation
	for range 4 {
		predecessor := contender.CuratorLock.NamePrefix(other.newGUID()) + "0000000001"
		require.Empty(t, r.predict(contender.CuratorLock.NamePrefix(r.newGUID())+"0000000002", 1, nil))
		r.observe(predecessor)
	}
	require.NotEmpty(t, r.predict(contender.CuratorLock.NamePrefix(r.newGUID())+"0000000002", 2, nil))
}
