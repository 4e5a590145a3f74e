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
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the screens to testdata")

var began = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// after is so many seconds after the start.
func after(seconds int) time.Time { return began.Add(time.Duration(seconds) * time.Second) }

// stands is a candidate with a number, which joined so long before the start.
func stands(name string, n int, before time.Duration) Candidate {
	return Candidate{
		Name: name, ID: fmt.Sprintf("/jobs/report/_c_0f1e2d3c-4b5a-8e1e-9786-a5b4c3d2e1%02x-latch-%010d", n, n),
		Session: fmt.Sprintf("0x10000abcdef%04x", n), Token: 4294967000 + int64(n), Since: began.Add(-before),
	}
}

func line(n int) (all []Candidate) {
	for i := range n {
		all = append(all, stands(fmt.Sprintf("web-%d", i), i, time.Duration(n-i)*time.Hour))
	}
	return all
}

var (
	one  = stands("web-1", 1, 26*time.Hour)
	two  = stands("web-2.rack-7.example.org-4711-abcdefgh", 2, 61*time.Minute)
	four = stands("web-4", 4, 59*time.Second)
)

// TestScreens compares screens after messages with those in testdata. Each row there begins with
// the initials of the looks of its spans, and * after those that are selected.
func TestScreens(t *testing.T) {
	known := []Message{
		Heard{after(1), "/jobs/report", []Candidate{one, two, four}},
		Heard{after(1), "/jobs/clean", nil},
		Failed{after(2), "/jobs/none", errors.New("there is none"), true},
	}
	all := func(more ...Message) []Message { return append(known[:len(known):len(known)], more...) }
	changes := []Message{
		Heard{after(10), "/jobs/clean", []Candidate{four}},
		Heard{after(11), "/jobs/clean", []Candidate{four, two}},
		Heard{after(12), "/jobs/clean", []Candidate{two}},
		Heard{after(13), "/jobs/none", []Candidate{one}},
		Failed{after(14), "/jobs/none", errors.New("there is none"), true},
		Failed{after(15), "/jobs/report", errors.New("the backend does not answer"), false},
		Failed{after(16), "/jobs/report", errors.New("the backend does not answer"), false},
		Heard{after(17), "/jobs/report", nil},
	}
	var many []Message
	for i := range 30 {
		many = append(many, Heard{after(1), fmt.Sprintf("/jobs/%02d", i), line(40)})
	}
	var names []string
	for i := range 30 {
		names = append(names, fmt.Sprintf("/jobs/%02d", i))
	}
	for name, messages := range map[string][]Message{
		"nothing known yet": {Tick{after(2)}},
		"known":             all(Tick{after(62)}),
		"leader changes":    all(Heard{after(3600), "/jobs/report", []Candidate{two, four}}, Tick{after(3605)}),
		"leader goes":       all(Heard{after(60), "/jobs/report", nil}),
		"leader comes":      all(Heard{after(60), "/jobs/clean", []Candidate{four}}, KeyDown),
		"no answer": all(Failed{after(9), "/jobs/report", errors.New("candidates at /jobs/report: the backend does not answer"), false},
			Failed{after(9), "/jobs/none", errors.New("the same"), false}),
		"never an answer": {Failed{after(9), "/jobs/report", errors.New("the backend\ndoes not answer"), false}},
		"answer again":    all(Failed{after(9), "/jobs/report", errors.New("late"), false}, Heard{after(10), "/jobs/report", []Candidate{one, two}}),
		"line":            all(KeySwitch, KeyDown),
		"line end":        all(KeySwitch, KeyEnd, KeyDown),
		"line shrinks":    all(KeySwitch, KeyEnd, Heard{after(3), "/jobs/report", []Candidate{one}}),
		"line and back":   all(KeySwitch, KeyDown, KeyBack),
		"help":            all(KeyHelp),
		"help and back":   all(KeyHelp, KeyDown),
		"narrow":          all(Size{60, 14}, KeySwitch),
		"wide":            all(Size{130, 16}, KeySwitch, KeyDown),
		"tiny":            all(Size{30, 5}),
		"many":            append(many, KeyEnd, KeyUp, KeySwitch, KeyEnd),
		"found":           all(Found{[]string{"/jobs/report", "/jobs/new"}, "more than 1000 znodes under /jobs: not all are looked at"}),
		"strange names": {Heard{after(1), "/jobs/report", []Candidate{
			{Name: "\x1b[31mred\nrow", ID: "/e/x\x07", Token: 1}, {Name: "日本語の名前がとても長い場合にはどうなるか", ID: "/e/y"},
		}}},
		"filter":         all(KeyFilter, Typed{"C"}, Typed{"l"}, Typed{"x"}, KeyErase),
		"filter kept":    all(KeyFilter, Typed{"c"}, Typed{"l"}, KeySwitch),
		"filter empty":   all(KeyFilter, Typed{"?"}),
		"filter removed": all(KeyFilter, Typed{"q"}, KeySwitch, KeyBack),
		"sorted":         all(Typed{"j"}, Typed{"s"}),
		"by state":       all(KeySort, KeySort),
		"ask":            all(KeyResign),
		"ask another":    all(KeySwitch, KeyDown, KeyResign),
		"asked": all(KeyResign, Typed{"y"}, Heard{after(3), "/jobs/report", []Candidate{two, four}},
			Resigned{after(4), Request{"/jobs/report", one}, nil}),
		"not handed over": all(KeyResign, Typed{"y"}, Resigned{after(63), Request{"/jobs/report", one}, errors.New("not within 1m")}),
		"160x50":          append(all(Size{160, 50}, KeySwitch), changes...),
		"80x24":           append(all(), changes...),
	} {
		t.Run(name, func(t *testing.T) {
			s := New("zookeeper zk1,zk2,zk3", began, "/jobs/report", "/jobs/clean", "/jobs/none")
			if name == "many" {
				s = New("zookeeper zk1,zk2,zk3", began, names...)
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
					style += string("PTHLDWA"[span.Look])
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

// TestUpdateLeavesTheFormerState: a State can be kept.
func TestUpdateLeavesTheFormerState(t *testing.T) {
	before := New("", began, "/a")
	view := before.View()
	before.Update(Heard{after(1), "/a", []Candidate{one}}).Update(KeySwitch).Update(Found{Elections: []string{"/b"}})
	require.Equal(t, view, before.View())
}

// The user confirms a request. It names the candidate that was selected when the user asked.
func TestRequest(t *testing.T) {
	s := New("", began, "/a").Update(KeyResign)
	require.Nil(t, s.asking, "there is no candidate")
	s = s.Update(Heard{after(1), "/a", []Candidate{one, two}}).Update(Typed{"r"})
	_, request := s.TakeRequest()
	require.Nil(t, request, "it is not confirmed")
	for _, no := range []Message{Typed{"n"}, KeyBack, KeyDown, Typed{"q"}} {
		_, request = s.Update(no).TakeRequest()
		require.Nil(t, request)
		require.False(t, s.Update(no).Quit())
	}
	s, request = s.Update(Heard{after(2), "/a", []Candidate{two}}).Update(Typed{"y"}).TakeRequest()
	require.Equal(t, &Request{"/a", one}, request)
	_, request = s.TakeRequest()
	require.Nil(t, request)
}

// An election remains selected if its row changes, and with a filter another one is selected.
func TestSelectionFollows(t *testing.T) {
	s := New("", began, "/b", "/a", "/c").Update(KeyDown)
	require.Equal(t, "/a", s.selected)
	s = s.Update(KeySort)
	require.Equal(t, "/a", s.selected)
	require.Equal(t, 0, s.row)
	s = s.Update(KeyFilter).Update(Typed{"c"})
	require.Equal(t, "/c", s.selected)
}

func TestQuit(t *testing.T) {
	s := New("", began, "/a")
	require.False(t, s.Update(KeyNone).Quit())
	require.True(t, s.Update(KeyQuit).Quit())
	require.True(t, s.Update(KeyHelp).Update(KeyQuit).Quit())
	for _, k := range []Key{KeyUp, KeyDown, KeyHome, KeyEnd, KeySwitch} { // with nothing to select
		s = New("", began).Update(KeySwitch).Update(k)
		require.NotEmpty(t, s.View())
	}
}

func TestAge(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 59 * time.Second: "59s", time.Minute: "1m00s", time.Hour - 1: "59m59s",
		time.Hour: "1h00m", 25 * time.Hour: "1d01h", 1000 * 24 * time.Hour: "1000d00h",
	} {
		require.Equal(t, want, age(d))
	}
}
