package filelog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/go-leaderelection/leaderelection/adapters/raftlog/internal/testenv/crashdisk"
)

// TestHistoryIsWhatTheLogHas: beside a log in use, after every kind of operation.
func TestHistoryIsWhatTheLogHas(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			fs := crashdisk.New(r)
			o := Options{SegmentSize: 4096 << (seed % 3)}
			l, err := Open(fs, "data/log", o)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			var m model
			for i := range 200 {
				step := m.random(r, false)
				if step.reopen {
					continue
				}
				require.NoError(t, step.do(l), "step %d", i)
				if m = m.after(step); i%5 == 0 {
					requireHistory(t, fs, m)
				}
			}
		})
	}
}

func requireHistory(t *testing.T, fs *crashdisk.Disk, m model) {
	t.Helper()
	next := uint64(0)
	var got []*raftpb.Entry
	extent, err := History(fs, "data/log", func(r Record, committed bool) error {
		if next != 0 && r.Index != next {
			return fmt.Errorf("entry %d, not %d", r.Index, next)
		}
		next = r.Index + 1
		if committed != (r.Index <= m.state.commit) {
			return fmt.Errorf("entry %d: committed is %t, through %d", r.Index, committed, m.state.commit)
		}
		if r.Index > m.mark.index {
			got = append(got, &raftpb.Entry{Index: &r.Index, Term: &r.Term, Data: r.Data})
		}
		return nil
	})
	require.NoError(t, err)
	require.Len(t, got, len(m.entries))
	for i, e := range m.entries {
		require.Equal(t, e.GetIndex(), got[i].GetIndex())
		require.Equal(t, e.GetTerm(), got[i].GetTerm())
		require.Equal(t, string(e.GetData()), string(got[i].GetData()))
	}
	require.Equal(t, m.mark.index, extent.Mark)
	require.Equal(t, max(m.state.commit, m.mark.index), extent.Commit)
	if len(got) > 0 {
		require.Equal(t, m.last(), extent.Last)
	}
}

func TestHistoryEndsWithAnError(t *testing.T) {
	fs := crashdisk.New(rand.New(rand.NewPCG(1, 1)))
	l, err := Open(fs, "log", Options{SegmentSize: 4096})
	require.NoError(t, err)
	require.NoError(t, l.Append(Batch{HardState: hard(1, 1, 2), Entries: entries(1, 4, 1, 10), Sync: true}))
	defer l.Close()
	stop := errors.New("enough")
	for at := range uint64(4) {
		n := uint64(0)
		_, err := History(fs, "log", func(Record, bool) error {
			if n++; n > at {
				return stop
			}
			return nil
		})
		require.ErrorIs(t, err, stop)
		require.Equal(t, at+1, n)
	}
}
