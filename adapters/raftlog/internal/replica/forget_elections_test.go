package replica

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/api"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/dedup"
	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/entry"
)

func end(ls *Lines, election string, through, index uint64) error {
	return ls.apply(entry.Op{Do: entry.End, Election: election, Through: through}, index, now)
}

// TestForgottenElections: a Forget removes elections that were ended through its index, and empty
// elections that were restarted. It keeps elections with candidates, and elections ended later.
func TestForgottenElections(t *testing.T) {
	ls := newLines()
	join := func(election string, index uint64) error {
		return ls.apply(entry.Op{Do: entry.Join, Election: election, Candidate: fmt.Sprint(index), Peer: 1}, index, now)
	}
	restart := func(election string, index uint64) {
		require.NoError(t, ls.apply(entry.Op{Do: entry.Restart, Election: election, Through: index - 1}, index, now))
	}
	require.NoError(t, end(&ls, "ended", 1, 2))
	require.NoError(t, end(&ls, "begun anew", 2, 3))
	restart("begun anew", 4)
	require.NoError(t, end(&ls, "with a candidate", 4, 5))
	restart("with a candidate", 6)
	require.NoError(t, join("with a candidate", 7))
	require.NoError(t, end(&ls, "ended again", 7, 8))
	restart("ended again", 9)
	require.NoError(t, join("never ended", 10))
	through := uint64(10)
	require.NoError(t, end(&ls, "ended again", 10, 11))
	require.NoError(t, end(&ls, "ended later", 11, 12))

	_, err := ls.forget(entry.Op{Through: 13}, 13)
	require.ErrorIs(t, err, api.ErrInvalid)
	removed, err := ls.forget(entry.Op{Through: through}, 13)
	require.NoError(t, err)
	require.Equal(t, []string{"ended"}, removed)
	require.Equal(t, []string{"ended again", "ended later", "never ended", "with a candidate"}, ls.Names())
	require.Len(t, ls.past, 2)
	require.ErrorIs(t, join("ended later", 14), errEnded)

	require.NoError(t, ls.apply(entry.Op{Do: entry.Leave, Election: "with a candidate", Candidate: "7"}, 15, now))
	require.NotContains(t, ls.Names(), "with a candidate", "it has been ended once, and that is forgotten")
	_, err = ls.forget(entry.Op{Through: 5}, 16)
	require.NoError(t, err)
	require.Equal(t, through, ls.forgotten)

	// If a forgotten election is restarted, its token is greater, and a delayed request does not end it.
	require.NoError(t, join("ended", 17))
	require.Equal(t, uint64(17), ls.Line("ended").Candidates[0].Token)
	require.ErrorIs(t, end(&ls, "ended", 1, 18), api.ErrStale)
	require.ErrorIs(t, end(&ls, "with a candidate", 4, 19), api.ErrStale)
	require.False(t, ls.Line("ended").Ended)
	require.NoError(t, end(&ls, "ended", 17, 20))
	require.True(t, ls.Line("ended").Ended)
}

// TestForgettable: elections are forgotten in the order in which they were ended, if they are old
// enough or too many, and only if no candidate can still lead them.
func TestForgettable(t *testing.T) {
	ls := newLines()
	clock := now
	over := func(string) bool { return true }
	for i := range uint64(3 * maxForget) {
		clock = now.Add(time.Duration(i) * time.Second)
		require.NoError(t, ls.apply(entry.Op{Do: entry.End, Election: fmt.Sprint(i)}, i+2, clock))
	}
	require.Zero(t, ls.Forgettable(now, over))
	require.Equal(t, uint64(11), ls.Forgettable(now.Add(10*time.Second), over))
	require.Equal(t, uint64(6), ls.Forgettable(now.Add(10*time.Second), func(name string) bool { return name != "5" }))
	require.Equal(t, uint64(maxForget+1), ls.Forgettable(clock, over))
	date, found, tooMany := ls.Oldest()
	require.True(t, found && !tooMany)
	require.Equal(t, now, date)

	// If an election was restarted, the entry that ended it does not count.
	require.NoError(t, ls.apply(entry.Op{Do: entry.Restart, Election: "5", Through: 1 << 40}, 1<<40, clock))
	require.Equal(t, uint64(11), ls.Forgettable(now.Add(10*time.Second), func(name string) bool { return name != "5" }))

	for i := uint64(3 * maxForget); len(ls.past) < maxPast+10; i++ {
		require.NoError(t, ls.apply(entry.Op{Do: entry.End, Election: fmt.Sprint(i)}, 1<<41+i, clock))
	}
	require.Equal(t, uint64(11), ls.Forgettable(now, over))
	_, _, tooMany = ls.Oldest()
	require.True(t, tooMany)
	require.Zero(t, ls.Forgettable(now, func(string) bool { return false }))
}

// TestForgottenInSnapshots: a snapshot contains the state on which a Forget depends, and an
// inconsistent snapshot is rejected.
func TestForgottenInSnapshots(t *testing.T) {
	s := New([]entry.Peer{{ID: "a", Raft: 1}}, time.Hour, time.Second)
	s.Index, s.Clock = 100, now.Add(time.Hour)
	require.NoError(t, end(&s.Lines, "forgotten", 1, 10))
	require.NoError(t, end(&s.Lines, "first", 1, 20))
	require.NoError(t, end(&s.Lines, "second", 1, 30))
	_, err := s.Lines.forget(entry.Op{Through: 12}, 90)
	require.NoError(t, err)
	var b bytes.Buffer
	_, err = s.View().WriteTo(&b)
	require.NoError(t, err)
	written := b.String()
	again, err := Read(&b)
	require.NoError(t, err)
	require.Equal(t, s.Sum(), again.Sum())
	require.Equal(t, uint64(12), again.Lines.forgotten)
	require.Equal(t, []past{{20, now, "first"}, {30, now, "second"}}, again.Lines.past)

	edited := func(old, replacement string) (*State, error) {
		size := binary.BigEndian.Uint32([]byte(written))
		tables := strings.Replace(written[4:4+size], old, replacement, 1)
		require.NotEqual(t, written[4:4+size], tables)
		require.True(t, json.Valid([]byte(tables)))
		b := binary.BigEndian.AppendUint32(nil, uint32(len(tables)))
		table := bytes.NewBuffer(append(b, tables...))
		_, err := dedup.New().Snapshot().WriteTo(table)
		require.NoError(t, err)
		return Read(table)
	}
	date := fmt.Sprintf(`,"date":%d`, now.UnixNano())
	for _, garbage := range [][2]string{
		{`"forgotten":12`, `"forgotten":101`},
		{`"endedAt":20`, `"endedAt":101`},
		{`"ended":true,`, ``},
		{`"endedAt":20` + date, `"endedAt":20,"begunAt":30` + date},
		{`"endedAt":20` + date, `"endedAt":20` + date + `,"candidates":[{"id":"c"}]`},
	} {
		_, err := edited(garbage[0], garbage[1])
		require.ErrorIs(t, err, entry.ErrMalformed, garbage)
	}
	// If an earlier version wrote the snapshot, it has no dates: the window begins with the snapshot.
	again, err = edited(date, "")
	require.NoError(t, err)
	require.Equal(t, []past{{20, s.Clock, "first"}, {30, now, "second"}}, again.Lines.past)
}
