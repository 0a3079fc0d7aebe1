package embedded

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	uiconfig "github.com/temporalio/ui-server/v2/server/config"
	"github.com/temporalio/ui-server/v2/server/csrf"
	"github.com/temporalio/ui-server/v2/server/route"
	"github.com/temporalio/ui-server/v2/ui"
)

// newUI is the Web UI for this server only: no login, no other origins, no news from its vendor. Its root opens the view, if there is one.
func newUI(at port, frontend string, view *View) (*http.Server, error) {
	settings, err := uiconfig.NewConfigProviderWithRefresh(&uiconfig.Config{
		Host:                loopback,
		Port:                at.number,
		TemporalGRPCAddress: frontend,
		EnableUI:            true,
		DefaultNamespace:    Namespace,
		CORS:                uiconfig.CORS{CookieInsecure: true}, // plain HTTP, on loopback
		HideLogs:            true,
		DisableNewsFetch:    true,
	})
	if err != nil {
		return nil, err
	}
	assets, err := ui.Assets()
	if err == nil {
		assets, err = fs.Sub(assets, "local")
	}
	if err != nil {
		return nil, err
	}
	e := echo.New()
	e.Use(middleware.Recover(), middleware.Gzip(), middleware.Secure())
	e.Use(csrf.EnsureTokenCookie(false), middleware.CSRFWithConfig(csrf.MiddlewareConfig(settings, false)))
	route.SetHealthRoute(e)
	if view != nil {
		view.serve(e)
	}
	err = errors.Join(route.SetAPIRoutes(e, settings, nil), route.SetUIRoutes(e, "", assets))
	route.SetRenderRoute(e, "")
	return &http.Server{Addr: at.address(), Handler: loopbackOnly(e), ReadHeaderTimeout: time.Minute}, err
}

// loopbackOnly refuses requests with a Host other than this machine. The UI has no other protection. For the browser, a page whose name
// resolves to 127.0.0.1 (DNS rebinding) has the same origin as the UI.
func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopback(r.Host) {
			http.Error(w, "this is not "+loopback, http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a Host header means this machine, on any port.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// serveUI serves until the server is stopped.
func (s *Server) serveUI() {
	if err := s.ui.ListenAndServe(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		s.log.Error("the Web UI ended: " + err.Error())
	}
}

func waitForUI(ctx context.Context, url string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return waitUntil(ctx, "the Web UI answers", func() error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/healthz", nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", response.Status)
		}
		return nil
	})
}
