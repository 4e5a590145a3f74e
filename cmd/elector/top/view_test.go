package top

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/clipperhouse/displaywidth"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the screens to testdata")

// TestView_MatchesTestdata checks that each screen is equal to its file in testdata. Each row of a file begins with
// the initials of the styles of its spans, with * after the style of a selected span.
func TestView_MatchesTestdata(t *testing.T) {
	listed := []Message{
		Listed{secondsAfterStart(1), "/jobs/report", []Candidate{one, two, four}},
		Listed{secondsAfterStart(1), "/jobs/clean", nil},
		Missing{secondsAfterStart(2), "/jobs/none"},
	}
	then := func(more ...Message) []Message { return append(listed[:len(listed):len(listed)], more...) }
	changes := []Message{
		Listed{secondsAfterStart(10), "/jobs/clean", []Candidate{four}},
		Listed{secondsAfterStart(11), "/jobs/clean", []Candidate{four, two}},
		Listed{secondsAfterStart(12), "/jobs/clean", []Candidate{two}},
		Listed{secondsAfterStart(13), "/jobs/none", []Candidate{one}},
		Missing{secondsAfterStart(14), "/jobs/none"},
		Failed{secondsAfterStart(15), "/jobs/report", errors.New("the backend does not answer")},
		Failed{secondsAfterStart(16), "/jobs/report", errors.New("the backend does not answer")},
		Listed{secondsAfterStart(17), "/jobs/report", nil},
	}
	var many []Message
	for i := range 30 {
		many = append(many, Listed{secondsAfterStart(1), fmt.Sprintf("/jobs/%02d", i), newQueue(40)})
	}
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("/jobs/%02d", i))
	}
	for name, messages := range map[string][]Message{
		"nothing listed": {Tick{secondsAfterStart(2)}},
		"listed":         then(Tick{secondsAfterStart(62)}),
		"leader changes": then(Listed{secondsAfterStart(3600), "/jobs/report", []Candidate{two, four}}, Tick{secondsAfterStart(3605)}),
		"leader goes":    then(Listed{secondsAfterStart(60), "/jobs/report", nil}),
		"leader comes":   then(Listed{secondsAfterStart(60), "/jobs/clean", []Candidate{four}}, KeyDown),
		"no answer": then(Failed{secondsAfterStart(9), "/jobs/report", errors.New("candidates at /jobs/report: the backend does not answer")},
			Failed{secondsAfterStart(9), "/jobs/none", errors.New("the same")}),
		"no answer yet":  {Failed{secondsAfterStart(9), "/jobs/report", errors.New("the backend\ndoes not answer")}},
		"answers again":  then(Failed{secondsAfterStart(9), "/jobs/report", errors.New("late")}, Listed{secondsAfterStart(10), "/jobs/report", []Candidate{one, two}}),
		"queue":          then(KeySwitch, KeyDown),
		"queue end":      then(KeySwitch, KeyEnd, KeyDown),
		"queue shrinks":  then(KeySwitch, KeyEnd, Listed{secondsAfterStart(3), "/jobs/report", []Candidate{one}}),
		"queue and back": then(KeySwitch, KeyDown, KeyBack),
		"help":           then(KeyHelp),
		"help and back":  then(KeyHelp, KeyDown),
		"narrow":         then(Size{60, 14}, KeySwitch),
		"wide":           then(Size{130, 16}, KeySwitch, KeyDown),
		"tiny":           then(Size{30, 5}),
		"many":           append(many, KeyEnd, KeyUp, KeySwitch, KeyEnd),
		"found":          then(Found{[]string{"/jobs/report", "/jobs/new"}, "more than 1000 znodes under /jobs: only some are searched"}),
		"strange names": {Listed{secondsAfterStart(1), "/jobs/report", []Candidate{
			{Name: "\x1b[31mred\nrow", ID: "/e/x\x07", Token: 1}, {Name: "日本語の名前がとても長い場合にはどうなるか", ID: "/e/y"},
		}}},
		"filter":         then(KeyFilter, Typed{"C"}, Typed{"l"}, Typed{"x"}, KeyErase),
		"filter kept":    then(KeyFilter, Typed{"c"}, Typed{"l"}, KeySwitch),
		"filter empty":   then(KeyFilter, Typed{"?"}),
		"filter removed": then(KeyFilter, Typed{"q"}, KeySwitch, KeyBack),
		"sorted":         then(Typed{"j"}, Typed{"s"}),
		"by state":       then(KeySort, KeySort),
		"resign":         then(KeyResign),
		"resign other":   then(KeySwitch, KeyDown, KeyResign),
		"resigned": then(KeyResign, Typed{"y"}, Listed{secondsAfterStart(3), "/jobs/report", []Candidate{two, four}},
			Resigned{secondsAfterStart(4), Request{"/jobs/report", one}, nil}),
		"not handed over": then(KeyResign, Typed{"y"}, Resigned{secondsAfterStart(63), Request{"/jobs/report", one}, errors.New("not within 1m")}),
		"160x50":          append(then(Size{160, 50}, KeySwitch), changes...),
		"80x24":           append(then(), changes...),
	} {
		t.Run(name, func(t *testing.T) {
			s := New("zookeeper zk1,zk2,zk3", start, "/jobs/report", "/jobs/clean", "/jobs/none")
			if name == "many" {
				s = New("zookeeper zk1,zk2,zk3", start, names...)
			}
			for _, m := range messages {
				s = s.Update(m)
			}
			var b strings.Builder
			rows := s.View()
			require.Len(t, rows, s.height)
			for _, r := range rows {
				text, style := "", ""
				for _, span := range r {
					text += span.Text
					style += string("PTHLDWA"[span.Style])
					if span.Selected {
						style += "*"
					}
				}
				require.Equal(t, s.width, displaywidth.String(text), "%q", text)
				fmt.Fprintf(&b, "%-6s|%s\n", style, strings.TrimRight(text, " "))
			}
			file := filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".txt")
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), b.String())
		})
	}
}

// TestFormatAge_UsesAtMostTwoUnits checks that formatAge prints a duration with at most its two largest units.
func TestFormatAge_UsesAtMostTwoUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", time.Minute: "1m00s", time.Hour - 1: "59m59s",
		time.Hour: "1h00m", 25 * time.Hour: "1d01h", 1000 * 24 * time.Hour: "1000d00h",
	} {
		require.Equal(t, want, formatAge(d))
	}
}
