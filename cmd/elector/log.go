package main

import (
	"context"
	"log/slog"
)

// electionLog returns the logger for an election. Package elector logs each change of the role with level
// Info, so messages of the election with level Info are logged with level Debug.
func (s *settings) electionLog() *slog.Logger {
	return slog.New(infoAsDebug{s.log.Handler()}).WithGroup("election")
}

// infoAsDebug is a handler that replaces the level Info by Debug.
type infoAsDebug struct{ slog.Handler }

// debugIfInfo returns the level with which a message of the level l is logged.
func debugIfInfo(l slog.Level) slog.Level {
	if l == slog.LevelInfo {
		return slog.LevelDebug
	}
	return l
}

func (h infoAsDebug) Enabled(ctx context.Context, l slog.Level) bool {
	return h.Handler.Enabled(ctx, debugIfInfo(l))
}

func (h infoAsDebug) Handle(ctx context.Context, r slog.Record) error {
	r.Level = debugIfInfo(r.Level)
	return h.Handler.Handle(ctx, r)
}

func (h infoAsDebug) WithAttrs(attrs []slog.Attr) slog.Handler {
	return infoAsDebug{h.Handler.WithAttrs(attrs)}
}

func (h infoAsDebug) WithGroup(name string) slog.Handler {
	return infoAsDebug{h.Handler.WithGroup(name)}
}

// ignoreAfterSignal returns nil if ctx is done because of a signal, and otherwise err.
func ignoreAfterSignal(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
