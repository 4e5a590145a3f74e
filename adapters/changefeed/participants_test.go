package changefeed_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/adapters/changefeed"
)

var errBroken = errors.New("broken")

// waitUntilDone waits until ctx is done.
func waitUntilDone(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// brokenStores returns functions that break the store of a candidate after it was created, each in another way. None
// of these faults may keep the other candidates from leading.
func brokenStores() map[string]func(s *storeFuncs) {
	type heartbeat = func(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error)
	// onlyIf restricts a fault to the writes for which condition returns true.
	onlyIf := func(s *storeFuncs, condition func(prev, next changefeed.Record) bool, broken heartbeat) heartbeat {
		return func(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
			if condition(prev, next) {
				return broken(ctx, prev, next)
			}
			return s.Store.Heartbeat(ctx, prev, next)
		}
	}
	unacknowledged := func(s *storeFuncs) heartbeat {
		return func(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
			_, err := s.Store.Heartbeat(ctx, prev, next)
			return changefeed.Record{}, errors.Join(errBroken, err)
		}
	}
	late := func(s *storeFuncs) heartbeat {
		return func(ctx context.Context, prev, next changefeed.Record) (changefeed.Record, error) {
			_, _ = s.Store.Heartbeat(ctx, prev, next)
			return changefeed.Record{}, waitUntilDone(ctx)
		}
	}
	isClaim := func(prev, next changefeed.Record) bool { return next.Term > prev.Term && next.Session != "" }
	isRelease := func(prev, next changefeed.Record) bool { return prev.Session != "" && next.Session == "" }
	isHeartbeat := func(prev, next changefeed.Record) bool { return next.Session == prev.Session && next.Term == prev.Term }
	return map[string]func(s *storeFuncs){
		"WritesUnacknowledged":   func(s *storeFuncs) { s.heartbeat = unacknowledged(s) },
		"WritesLate":             func(s *storeFuncs) { s.heartbeat = late(s) },
		"ClaimsUnacknowledged":   func(s *storeFuncs) { s.heartbeat = onlyIf(s, isClaim, unacknowledged(s)) },
		"ClaimsLate":             func(s *storeFuncs) { s.heartbeat = onlyIf(s, isClaim, late(s)) },
		"ReleasesUnacknowledged": func(s *storeFuncs) { s.heartbeat = onlyIf(s, isRelease, unacknowledged(s)) },
		"HeartbeatsUnacknowledged": func(s *storeFuncs) {
			s.heartbeat = onlyIf(s, isHeartbeat, unacknowledged(s))
		},
		"HeartbeatsRejected": func(s *storeFuncs) {
			s.heartbeat = onlyIf(s, isHeartbeat, func(context.Context, changefeed.Record, changefeed.Record) (changefeed.Record, error) {
				return changefeed.Record{}, changefeed.ErrUnsuitable
			})
		},
		"ReleasesRejected": func(s *storeFuncs) {
			s.heartbeat = onlyIf(s, isRelease, func(context.Context, changefeed.Record, changefeed.Record) (changefeed.Record, error) {
				return changefeed.Record{}, changefeed.ErrUnsuitable
			})
		},
		"WritesRejected": func(s *storeFuncs) {
			s.heartbeat = func(context.Context, changefeed.Record, changefeed.Record) (changefeed.Record, error) {
				return changefeed.Record{}, changefeed.ErrUnsuitable
			}
		},
		"WritesHang": func(s *storeFuncs) {
			s.heartbeat = func(ctx context.Context, _, _ changefeed.Record) (changefeed.Record, error) {
				return changefeed.Record{}, waitUntilDone(ctx)
			}
		},
		"WritesConflict": func(s *storeFuncs) {
			s.heartbeat = func(context.Context, changefeed.Record, changefeed.Record) (changefeed.Record, error) {
				return changefeed.Record{}, changefeed.ErrConflict
			}
		},
		"WritesFindNoRecord": func(s *storeFuncs) {
			s.heartbeat = func(context.Context, changefeed.Record, changefeed.Record) (changefeed.Record, error) {
				return changefeed.Record{}, changefeed.ErrNoRecord
			}
		},
		"ReadsFail": func(s *storeFuncs) {
			s.read = func(context.Context) (changefeed.Record, error) { return changefeed.Record{}, errBroken }
		},
		"ReadsHang": func(s *storeFuncs) {
			s.read = func(ctx context.Context) (changefeed.Record, error) { return changefeed.Record{}, waitUntilDone(ctx) }
		},
		"ReadsFindNoRecord": func(s *storeFuncs) {
			s.read = func(context.Context) (changefeed.Record, error) {
				return changefeed.Record{}, changefeed.ErrNoRecord
			}
		},
		"WritesUnacknowledgedAndReadsFail": func(s *storeFuncs) {
			s.heartbeat = unacknowledged(s)
			s.read = func(context.Context) (changefeed.Record, error) { return changefeed.Record{}, errBroken }
		},
		"NoFeed": func(s *storeFuncs) {
			s.subscribe = func(context.Context) (changefeed.Feed, error) { return nil, errBroken }
		},
		"SilentFeed": func(s *storeFuncs) {
			s.subscribe = func(ctx context.Context) (changefeed.Feed, error) {
				f, err := s.Store.Subscribe(ctx)
				return &feedFuncs{Feed: f, next: func(ctx context.Context) (changefeed.Event, error) {
					return changefeed.Event{}, waitUntilDone(ctx)
				}}, err
			}
		},
		"FeedEndsAfterEachEvent": func(s *storeFuncs) {
			s.subscribe = func(ctx context.Context) (changefeed.Feed, error) {
				f, err := s.Store.Subscribe(ctx)
				delivered := false
				return &feedFuncs{Feed: f, next: func(ctx context.Context) (changefeed.Event, error) {
					if delivered {
						return changefeed.Event{}, errBroken
					}
					delivered = true
					return f.Next(ctx)
				}}, err
			}
		},
		"FeedFindsNoRecord": func(s *storeFuncs) {
			s.subscribe = func(ctx context.Context) (changefeed.Feed, error) {
				f, err := s.Store.Subscribe(ctx)
				return &feedFuncs{Feed: f, next: func(ctx context.Context) (changefeed.Event, error) {
					_, err := f.Next(ctx)
					return changefeed.Event{Missing: err == nil}, err
				}}, err
			}
		},
	}
}

// maxTimeWithoutLeader is the longest time that may pass without a leader if the broken candidate has received the
// record: a hand-over to it (250 ms), the longest election timeout (4 s), and one lease (1.75 s).
const maxTimeWithoutLeader = 250*time.Millisecond + 4*time.Second + 1750*time.Millisecond

// measureTimeWithoutLeader lets d pass, and returns the longest time in which none of the candidates was leader.
func (h *harness) measureTimeWithoutLeader(d time.Duration, candidates []*candidate) (longest time.Duration) {
	last := time.Now() // the last time at which one of the candidates was leader
	for end, over := time.After(d), false; !over; {
		led := slices.ContainsFunc(candidates, (*candidate).isLeader)
		select {
		case <-h.changed:
		case <-end:
			over = true
		}
		if led {
			last = time.Now()
		}
		longest = max(longest, time.Since(last))
	}
	return longest
}

// TestElection_HasLeaderDespiteBrokenParticipant checks that a candidate whose store is broken does not prevent the
// election of a leader. The healthy leaders resign, because then the broken candidate can interfere.
func TestElection_HasLeaderDespiteBrokenParticipant(t *testing.T) {
	for name, damage := range brokenStores() {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(h *harness) {
				broken := h.newCandidate("broken")
				s := &storeFuncs{Store: broken.store.Store}
				broken.store.Store = s
				damage(s)
				broken.start()
				all := []*candidate{broken, h.join("a"), h.join("b")}
				// All candidates wait for an election timeout, of at most 4 s, before the first claim. If the broken
				// candidate makes that claim, the others wait once more.
				require.LessOrEqual(t, h.measureTimeWithoutLeader(15*time.Second, all), 2*4*time.Second)
				var longest time.Duration
				for i := range 8 {
					longest = max(longest, h.measureTimeWithoutLeader(15*time.Second, all))
					for j, c := range all {
						if c != broken && c.isLeader() {
							require.NoError(t, c.Resign())
							all[j] = h.join(fmt.Sprint(c.id, i))
							break
						}
					}
				}
				require.LessOrEqual(t, longest, maxTimeWithoutLeader)
				t.Logf("at most %v without a leader", longest)
			})
		})
	}
}

// TestElection_HasLeaderAfterRecordIsEdited checks that a record that was edited by hand does not leave the
// candidates without a leader for longer than a crash does.
func TestElection_HasLeaderAfterRecordIsEdited(t *testing.T) {
	for name, edit := range map[string]func(r *changefeed.Record){
		"Nothing":         func(*changefeed.Record) {},
		"Released":        func(r *changefeed.Record) { r.Leader, r.Session, r.TTL = "", "", 0 },
		"LeaderOnly":      func(r *changefeed.Record) { r.Leader = "nobody" },
		"NoLeader":        func(r *changefeed.Record) { r.Leader = "" },
		"SessionOnly":     func(r *changefeed.Record) { r.Session = "nobody's" },
		"NoSession":       func(r *changefeed.Record) { r.Session = "" },
		"AnotherLeader":   func(r *changefeed.Record) { r.Leader, r.Session = "nobody", "nobody's" },
		"Nominee":         func(r *changefeed.Record) { r.Nominee = "nobody" },
		"TermLowered":     func(r *changefeed.Record) { r.Term = 1 },
		"TermZero":        func(r *changefeed.Record) { r.Term = 0 },
		"TermRaised":      func(r *changefeed.Record) { r.Term += 1000 },
		"SeqLowered":      func(r *changefeed.Record) { r.Seq = 1 },
		"SeqRaised":       func(r *changefeed.Record) { r.Seq += 1 << 40 },
		"AnotherEpoch":    func(r *changefeed.Record) { r.Epoch = "0.another" },
		"EpochNoNumber":   func(r *changefeed.Record) { r.Epoch = "another" },
		"TTLZero":         func(r *changefeed.Record) { r.TTL = 0 },
		"TTLShort":        func(r *changefeed.Record) { r.TTL = 1 },
		"TTLLong":         func(r *changefeed.Record) { r.TTL = time.Hour },
		"EverythingEmpty": func(r *changefeed.Record) { *r = changefeed.Record{Epoch: r.Epoch, Seq: r.Seq} },
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(h *harness) {
				candidates := []*candidate{h.join("a"), h.join("b"), h.join("c")}
				h.awaitLeader()
				h.passTime(5 * time.Second)
				r := h.record()
				edit(&r)
				h.replaceRecord(r)
				longest := h.measureTimeWithoutLeader(15*time.Second, candidates)
				leader := h.leader()
				require.NotNil(t, leader)
				leader.network.Cut() // The edit must not delay the next leader after a crash.
				others := []*candidate{}
				for _, c := range candidates {
					if c != leader {
						others = append(others, c)
					}
				}
				longest = max(longest, h.measureTimeWithoutLeader(15*time.Second, others))
				require.LessOrEqual(t, longest, maxTimeWithoutLeader)
				t.Logf("at most %v without a leader", longest)
			})
		})
	}
}
