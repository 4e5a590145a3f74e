package child

import "time"

// guardName is the first argument of a guard, by which Guard knows it.
const guardName = "elector-guard"

// What a guard is told: a spec first, then orders; and what it answers. Each is a line
// of JSON.
type (
	spec struct {
		Args             []string
		Env              []string
		Grace, LostGrace time.Duration
		Sweep, Leased    bool
		Lease            lease
	}
	order struct {
		Lease  *lease
		Signal int
		Stop   bool
	}
	report struct {
		Started  int // the program's, and its group's, number
		NotFound bool
		Err      string
		Exit     *Exit
	}
)

// lease is an instant for another process on this machine. The wall clock alone can be
// set back, and what is left alone does not count the time on the way.
type lease struct {
	Wall int64 // since 1970
	Left time.Duration
}

func newLease(t time.Time) lease { return lease{t.UnixNano(), time.Until(t)} }

// end is the instant by this process's clock.
func (l lease) end() time.Time {
	now := time.Now()
	return now.Add(min(l.Left, time.Unix(0, l.Wall).Sub(now.Round(0))))
}
