package lock

import (
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/internal/zk/contender"
)

// contenderOf returns the name of a contender of this library that requests n leases.
func contenderOf(n int, sequence int32) string {
	return leasePrefix(n)(contender.GUIDOf([16]byte{byte(sequence)})) + fmt.Sprintf("%010d", sequence)
}

// curatorContender returns the name of a contender for a lease that Curator has created.
func curatorContender(sequence int32) string {
	return fmt.Sprintf("_c_597de0d1-c10b-4e1e-a9f7-3a88a1fa7c26-lease-%010d", sequence)
}

// limitOf returns the name of a child that stores a limit.
func limitOf(limit int, sequence int32) string {
	return fmt.Sprintf("%s%010d", limitPrefix(limit), sequence)
}

// listingOf returns a listing of a semaphore's children by the contender with the name own, whose predecessor
// in the queue is predecessor.
func listingOf(own, predecessor string, names ...string) contender.Listing {
	return contender.Listing{Own: own, Predecessor: predecessor, Names: append(names, own), Counts: func(string) bool { return true }}
}

// TestCapacity_AdmitsUpToLimit checks that capacity admits a contender exactly if its leases and those of all
// earlier contenders are within the limit.
func TestCapacity_AdmitsUpToLimit(t *testing.T) {
	one, two, three := contenderOf(1, 1), contenderOf(2, 2), contenderOf(3, 3)
	own, ownTwo := contenderOf(1, 5), contenderOf(2, 5)
	turn, next := contender.Admission{Place: contender.First}, contender.Admission{Place: contender.BehindHolders}
	waits, waitsForAny := contender.Admission{Place: contender.Behind}, contender.Admission{Place: contender.BehindAny}
	followed := func(a contender.Admission) contender.Admission {
		a.Followed = true
		return a
	}
	for name, c := range map[string]struct {
		capacity capacity
		listing  contender.Listing
		want     contender.Admission
	}{
		"alone":                            {capacity{1, 1}, listingOf(own, ""), turn},
		"within the limit":                 {capacity{1, 4}, listingOf(own, two, one, two), turn},
		"all leases":                       {capacity{2, 5}, listingOf(ownTwo, two, one, two), turn},
		"one lease too many":               {capacity{2, 4}, listingOf(ownTwo, two, one, two), next},
		"earlier leases are too many":      {capacity{1, 3}, listingOf(own, two, one, two), next},
		"earlier contender waits":          {capacity{1, 5}, listingOf(own, three, one, two, three), waits},
		"a later contender":                {capacity{1, 1}, listingOf(own, "", contenderOf(9, 6)), followed(turn)},
		"a later contender, limit reached": {capacity{1, 1}, listingOf(own, one, one, contenderOf(9, 6)), next},
		"other children":                   {capacity{1, 1}, listingOf(own, "", "config", "lease-", "limit-0-0000000001"), turn},
		"after the overflow of numbers":    {capacity{1, 1}, listingOf(contenderOf(1, math.MinInt32), contenderOf(1, math.MaxInt32), contenderOf(1, math.MaxInt32)), next},

		"stored limit":                        {capacity{1, 1}, listingOf(own, two, one, two, limitOf(4, 3)), turn},
		"stored limit, lower":                 {capacity{1, 9}, listingOf(own, two, one, two, limitOf(3, 3)), next},
		"newest stored limit":                 {capacity{1, 1}, listingOf(own, two, one, two, limitOf(4, 6), limitOf(3, 3)), turn},
		"waits, limit older than predecessor": {capacity{1, 9}, listingOf(own, three, one, two, three, limitOf(4, 2)), waits},
		"waits, limit newer than predecessor": {capacity{1, 9}, listingOf(own, three, one, two, three, limitOf(4, 4)), waitsForAny},
		"waits behind a contender of Curator": {capacity{1, 1}, listingOf(own, curatorContender(4), one, two, curatorContender(4)), waitsForAny},

		"more leases than the limit":        {capacity{2, 1}, listingOf(ownTwo, ""), contender.Admission{Err: ErrOverLimit}},
		"more leases than the stored limit": {capacity{2, 9}, listingOf(ownTwo, "", limitOf(1, 7)), contender.Admission{Err: ErrOverLimit}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.capacity.admit(c.listing)) })
	}
}

// TestCapacity_DoesNotCountOrphans checks that capacity does not count the leases of znodes that earlier
// creates of the same contender have left behind.
func TestCapacity_DoesNotCountOrphans(t *testing.T) {
	orphan, own := contenderOf(1, 1), contenderOf(1, 5)
	l := listingOf(own, "", orphan)
	l.Counts = func(name string) bool { return name != orphan }
	require.Equal(t, contender.First, capacity{1, 1}.admit(l).Place)
}

// TestCapacity_SumDoesNotOverflow checks that the sum of many large requests does not overflow. A negative sum
// would seem to be within the limit.
func TestCapacity_SumDoesNotOverflow(t *testing.T) {
	var names []string
	for i := range int32(10) {
		names = append(names, contenderOf(contender.MaxCount, i))
	}
	own := contenderOf(1, 20)
	require.NotEqual(t, contender.First, capacity{1, contender.MaxCount}.admit(listingOf(own, names[9], names...)).Place)
}

// TestAllChildren_CountsChildrenOfAnyName checks that allChildren counts each child as a lease, whatever its
// name is, except the znodes that earlier creates of the same contender have left behind.
func TestAllChildren_CountsChildrenOfAnyName(t *testing.T) {
	own := curatorContender(2)
	admit := allChildren(2)
	turn, wait := contender.Admission{Place: contender.First}, contender.Admission{Place: contender.BehindHolders}
	require.Equal(t, turn, admit(listingOf(own, "")))
	require.Equal(t, turn, admit(listingOf(own, "", curatorContender(9))))
	require.Equal(t, wait, admit(listingOf(own, "", curatorContender(9), "597de0d1c10b4e1ea9f73a88a1fa7c26")))

	l := listingOf(own, "", curatorContender(9), curatorContender(1))
	l.Counts = func(name string) bool { return name != curatorContender(1) }
	require.Equal(t, turn, admit(l), "an orphan does not count")
}

// TestLeasesInName_ReturnsNumberOrOne checks that leasesInName returns the number in a contender's name, and 1
// for a name without a valid number.
func TestLeasesInName_ReturnsNumberOrOne(t *testing.T) {
	for _, n := range []int{1, 2, 10, contender.MaxCount} {
		name := contenderOf(n, 7)
		require.Equal(t, n, leasesInName(name), name)
		require.True(t, contender.IsOurs(name), name)
		require.True(t, contender.Recognized(name), name)
	}
	for _, name := range []string{
		curatorContender(1), "config", "x2-lease-0000000001", "_c_x-x-lease-0000000001", "_c_x-x0-lease-0000000001", "_c_x-x02-lease-0000000001",
		"_c_x-x1000000000-lease-0000000001", "_c_x-x2y-lease-0000000001", "_c_x-x2-lock-0000000001",
	} {
		require.Equal(t, 1, leasesInName(name), name)
	}
}

// TestLeasesOf_SumsLeasesOfContenders checks that leasesOf returns the sum of the leases of all contenders, and
// ignores children that are not contenders.
func TestLeasesOf_SumsLeasesOfContenders(t *testing.T) {
	require.EqualValues(t, 6, leasesOf([]string{contenderOf(2, 1), "config", curatorContender(2), contenderOf(3, 3), limitOf(9, 4)}))
	require.Zero(t, leasesOf(nil))
}

// TestStoredLimit_ReturnsNewestLimit checks that storedLimit returns the newest limit, and ignores children
// that do not store a limit.
func TestStoredLimit_ReturnsNewestLimit(t *testing.T) {
	_, _, stored := storedLimit([]string{
		contenderOf(1, 1), "limit", "limit-", "limit-3", "limit-x-0000000001", "limit-0-0000000001", "limit-09-0000000001",
		"limit--9-0000000001", "limit-9-0000000001x",
	})
	require.False(t, stored)

	limit, changed, stored := storedLimit([]string{limitOf(3, math.MinInt32+1), limitOf(7, math.MaxInt32), contenderOf(1, 1)})
	require.True(t, stored)
	require.Equal(t, 3, limit, "the sequence number of the newest limit has overflowed")
	require.EqualValues(t, math.MinInt32+1, changed)
}
