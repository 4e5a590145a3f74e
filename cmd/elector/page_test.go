//go:build unix

package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-leaderelection/leaderelection/candidacy"
	"github.com/go-leaderelection/leaderelection/elector"
)

// newPageServer returns a server whose backend lists the candidates that list returns.
func newPageServer(t *testing.T, election string, list func(context.Context) ([]candidateInfo, error)) *webServer {
	t.Helper()
	b := backend{}
	if list != nil {
		b.list = func(ctx context.Context, _ string) ([]candidateInfo, error) { return list(ctx) }
	}
	s := &settings{election: election, instanceID: "b", log: slog.New(slog.DiscardHandler)}
	return newWebServer(&runCommand{settings: s}, &elector.Elector{}, b, t.Context().Done())
}

// requirePageText requires that the text of the page, without its tags, contains these parts in this order.
func requirePageText(t *testing.T, w *webServer, want ...string) {
	t.Helper()
	code, page := getPage(w, "/")
	require.Equal(t, http.StatusOK, code)
	_, page, _ = strings.Cut(page, "<main>")
	text := strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " ")), " ")
	rest := text
	for _, part := range want {
		_, after, found := strings.Cut(rest, part)
		require.True(t, found, "%q is missing, or at another place: %s", part, text)
		rest = after
	}
}

// TestPage_ShowsQueue checks that the page of --listen shows the leader, the queue of candidates and the last changes
// of the leader.
func TestPage_ShowsQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // fake time begins at 2000-01-01 00:00
		a := candidateInfo{Name: "a", Value: "a:80", ID: "/e/1", Token: 7, Joined: time.Now()}
		b := candidateInfo{Name: "b", ID: "/e/2", Token: 9, Joined: time.Now().Add(time.Second)}
		queue := []candidateInfo{a, b}
		w := newPageServer(t, "/e", func(context.Context) ([]candidateInfo, error) { return queue, nil })
		requirePageText(t, w, "/e No leader is known", "Name b State joining (NOTLEADER)",
			"leader a a:80 7 2000-01-01 00:00:00 UTC /e/1", "1 b 9 2000-01-01 00:00:01 UTC /e/2",
			"None since this instance has started", "As of 2000-01-01 00:00:00 UTC")

		w.run.leader.set(&a)
		w.run.leader.set(&a)
		requirePageText(t, w, "a leads Since before this instance observed it Token 7 Value a:80", "This instance",
			"Observed Leader Token 2000-01-01 00:00:00 UTC a 7 As of")

		time.Sleep(time.Minute)
		w.run.leader.set(nil)
		b.LeadsSince = time.Now()
		w.run.leader.set(&b)
		queue = []candidateInfo{b}
		time.Sleep(90 * time.Second)
		l, _ := candidacy.NewLeadership(9, func() time.Time { return time.Now().Add(time.Second) })
		w.term = &begunTerm{t.Context(), l}
		requirePageText(t, w, "b leads Since 2000-01-01 00:01:00 UTC, for 1m30s Token 9",
			"State leads", "Lease until 2000-01-01 00:02:31 UTC", "leader b 9", "Changes of the leader",
			"00:01:00 UTC b 9", "00:01:00 UTC none, or unknown", "00:00:00 UTC a 7 As of")

		for i := range int64(2 * maxChanges) {
			w.run.leader.set(&candidateInfo{Name: "c", Token: 100 + i})
		}
		changes := w.run.leader.lastChanges()
		require.Len(t, changes, maxChanges)
		require.EqualValues(t, 100+2*maxChanges-1, changes[0].Token)
	})
}

// TestPage_EscapesTextsOfCandidates checks that the page of --listen escapes names and values of candidates, and that
// its security policy lets a browser load and execute nothing but the style and the script of the page.
func TestPage_EscapesTextsOfCandidates(t *testing.T) {
	const hostile = "</title></script></style><script>alert('1')</script><img src=//evil.example onerror=alert(1)>\" ' & \u202e\x1b[31m"
	c := candidateInfo{Name: hostile, Value: hostile, ID: hostile, Token: 7}
	w := newPageServer(t, hostile, func(context.Context) ([]candidateInfo, error) { return []candidateInfo{c, c}, nil })
	w.run.settings.instanceID = hostile
	w.run.leader.set(&c)
	recorder := httptest.NewRecorder()
	withCommonHeaders(w.newHandler()).ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/", nil))
	page := recorder.Body.String()
	require.Equal(t, 13, strings.Count(page, "&lt;script&gt;alert("), page)
	for _, raw := range []string{"alert('1')", "<img", "\u202e", "\x1b"} {
		require.NotContains(t, page, raw)
	}
	policy := recorder.Header().Get("Content-Security-Policy")
	require.Regexp(t, "^default-src 'none'; ", policy)
	for _, name := range []string{"style", "script"} {
		elements := regexp.MustCompile(`(?s)<`+name+`.*?>(.*?)</`+name+`>`).FindAllStringSubmatch(page, -1)
		require.Len(t, elements, 1, name)
		sum := sha256.Sum256([]byte(elements[0][1]))
		require.Contains(t, policy, name+"-src 'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"';")
	}
	tags := strings.Join(regexp.MustCompile(`<\w[^>]*>`).FindAllString(page, -1), "")
	for _, attribute := range regexp.MustCompile(`(?i) (?:src|href|style|on\w+)\s*=\s*["']?([^"'>]*)`).FindAllStringSubmatch(tags, -1) {
		require.Contains(t, []string{"leader", "readyz", "healthz", "metrics"}, attribute[1])
	}
}

// TestPage_SharesListOfCandidatesBetweenViewers checks that many viewers of the page share one request for the list
// of candidates, that a long list is requested less often than a short list, and that a viewer that disconnects does
// not cancel the request for the other viewers.
func TestPage_SharesListOfCandidatesBetweenViewers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lists, length := 0, 1
		w := newPageServer(t, "/e", func(ctx context.Context) ([]candidateInfo, error) {
			lists++
			select {
			case <-time.After(time.Second):
				return make([]candidateInfo, length), nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		})
		view := func(ctx context.Context) {
			go w.newHandler().ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil).WithContext(ctx))
		}
		begin := time.Now()
		for range 100 {
			view(t.Context())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, 1, lists)
		length = 1000
		requirePageText(t, w, "leader 0", "900 further candidates are not shown")
		require.Equal(t, 2, lists)
		time.Sleep(1000*queueAgeEach + queueAge - time.Second) // one second is subtracted, because the list itself took a second
		getPage(w, "/")
		require.Equal(t, 2, lists, "after %v", time.Since(begin))
		time.Sleep(2 * time.Second)
		ctx, disconnect := context.WithCancel(t.Context())
		view(ctx)
		synctest.Wait()
		disconnect()
		requirePageText(t, w, "900 further candidates are not shown")
		require.Equal(t, 3, lists)
	})
}

// TestPage_HidesErrorAndOutdatedQueue checks that the page, if the backend does not answer, is sent within the time
// limit, and contains neither the error, which may contain addresses, nor an outdated queue.
func TestPage_HidesErrorAndOutdatedQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newPageServer(t, "/e", func(ctx context.Context) ([]candidateInfo, error) {
			<-ctx.Done()
			return nil, fmt.Errorf("secret.example: %w", ctx.Err())
		})
		begin := time.Now()
		requirePageText(t, w, "Candidates The backend does not answer. Changes")
		require.Equal(t, listLimit, time.Since(begin))
		_, page := getPage(w, "/")
		require.NotContains(t, page, "secret")
		require.Equal(t, listLimit, time.Since(begin), "the failure is not remembered")
		w.backend.connected = func() error { return errors.New("disconnected") }
		requirePageText(t, w, "No leader is known", "State disconnected", "Candidates The backend does not answer. Changes")
	})
	requirePageText(t, newPageServer(t, "/e", nil), "This backend does not list the candidates here.")
}
