// Keeps a page up to date: one tab of a browser holds the stream of events for all of its tabs, and a tab that an event concerns reads its page
// again. Without script the pages are the same, and stay as they were made.
'use strict';
(() => {
  const live = document.getElementById('live');
  const channel = new BroadcastChannel('converge-board');
  const shares = Boolean(navigator.locks); // else, on plain HTTP beyond loopback, each tab has a stream of its own
  const gap = 300; // ms from an event to the reading of the page, so that a burst reads it once
  let timer = 0, reading = false, again = false;
  let known = ['', '']; // the last state of the stream, and its words

  const say = (state, text) => {
    if (document.body.dataset.outdated) return; // it says so
    live.dataset.state = state;
    live.textContent = text;
  };
  const watched = () => (document.body.dataset.watch || '').split(' ').filter(Boolean);

  // Times are in the zone of the reader; the title has UTC.
  const localize = () => document.querySelectorAll('time:not([data-age])').forEach((t) => {
    const at = new Date(t.dateTime);
    if (!t.title) t.title = t.textContent;
    t.textContent = t.closest('.as-of') ? at.toLocaleTimeString() : at.toLocaleString(undefined, { timeZoneName: 'short' });
  });

  // Ages go on while the page is open.
  const age = (seconds) => {
    const s = Math.max(0, Math.floor(seconds)), m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
    const pair = (big, unit, small, smallUnit) => big + unit + (small ? ' ' + small + smallUnit : '');
    return (d ? pair(d, 'd', h % 24, 'h') : h ? pair(h, 'h', m % 60, 'm') : m ? m + 'm' : s + 's') + ' ago';
  };
  setInterval(() => {
    document.querySelectorAll('time[data-age]').forEach((t) => { t.textContent = age((Date.now() - new Date(t.dateTime)) / 1000); });
  }, 10000);

  // read reads the page again and patches what has changed, so that focus, selection and scroll positions stay.
  const read = async () => {
    if (reading) { again = true; return; }
    reading = true;
    try {
      const answer = await fetch(location.href, { credentials: 'same-origin', signal: AbortSignal.timeout(30000) });
      if (answer.status === 401) { signedOut(); return; }
      delete document.body.dataset.signedOut;
      if (answer.status >= 500) throw new Error(answer.statusText); // the page stays as it is
      const next = new DOMParser().parseFromString(await answer.text(), 'text/html');
      const main = next.getElementById('main');
      if (!main) throw new Error('no page of the board'); // an answer of a proxy
      document.title = next.title;
      for (const name of ['watch', 'after']) document.body.dataset[name] = next.body.dataset[name];
      say(...known);
      Idiomorph.morph(document.getElementById('main'), main, {
        ignoreActiveValue: true,
        callbacks: { // what a person has opened or begun to fill in stays
          beforeAttributeUpdated: (name, node) => !(name === 'open' && node.tagName === 'DETAILS'),
          beforeNodeMorphed: (old) => !(old instanceof Element && old.matches('form.filter')),
        },
      });
      Idiomorph.morph(document.querySelector('.as-of time'), next.querySelector('.as-of time'));
      localize();
      moves(next.body);
    } catch (e) {
      say('lost', 'no connection');
      setTimeout(soon, 5000 + 5000 * Math.random());
    } finally {
      reading = false;
      if (again) { again = false; soon(); }
    }
  };
  // A tab of a person who is signed out keeps its page, and requests nothing more.
  const signedOut = () => {
    if (document.body.dataset.signedOut) return;
    const link = document.createElement('a');
    link.href = '/login?return_to=' + encodeURIComponent(location.pathname + location.search);
    link.textContent = 'sign in';
    say('lost', 'signed out; ');
    live.append(link);
    document.body.dataset.signedOut = 'true';
    leave();
  };
  const isSignedOut = () => fetch('/login/check', { credentials: 'same-origin' }).then((a) => a.status === 401, () => false);
  const check = async () => { if (await isSignedOut()) signedOut(); };
  const soon = () => {
    if (document.body.dataset.still || timer) return;
    timer = setTimeout(() => { timer = 0; read(); }, gap);
  };

  // A page of work in progress changes by more than services: it is read every two seconds while a person sees it.
  let moving = 0;
  const moves = (body) => {
    clearTimeout(moving);
    if (body.dataset.moves) moving = setTimeout(() => { if (document.visibilityState === 'visible') soon(); }, 2000);
  };

  // A form that a person fills in stays as it is. When its subject is in another state than the form shows, it says so.
  const compare = async () => {
    const { compare: path, state } = document.body.dataset;
    if (!path || document.body.dataset.outdated) return;
    const now = await fetch(path, { credentials: 'same-origin' }).then((a) => a.ok ? a.text() : state, () => state);
    if (now === state || document.body.dataset.outdated) return;
    const link = document.createElement('a');
    link.href = location.href;
    link.textContent = 'load the page again';
    say('lost', 'this has changed: ');
    live.append(link);
    document.body.dataset.outdated = 'true';
  };
  // While nothing has changed, the page is as of when the server last heard from Temporal.
  const upTo = (at) => {
    const t = document.querySelector('.as-of time');
    if (!document.body.dataset.lists && !watched().length) return; // it comes from elsewhere
    if (live.dataset.state !== 'on' || !at || new Date(at) <= new Date(t.dateTime)) return;
    t.dateTime = at;
    t.title = new Date(at).toUTCString();
    t.textContent = new Date(at).toLocaleTimeString();
  };

  const concerns = (event) => {
    if (event.name === 'reset') return true;
    const names = watched();
    return document.body.dataset.lists || event.services.some((s) => names.includes(s.application + '/' + s.service));
  };

  let leads = null; // the state of the stream, in the tab that holds it
  const on = (event) => {
    switch (event.name) {
      case 'leaves': check(); return;
      case 'alive': upTo(event.asOf); return;
      case 'who': if (leads) channel.postMessage({ name: 'state', state: leads }); return;
      case 'state':
        known = [event.state, event.state === 'on' ? 'live' : 'no connection'];
        if (event.state === 'on') delete document.body.dataset.signedOut;
        if (!document.body.dataset.signedOut) say(...known); // else it says how to sign in
        return;
    }
    if (document.body.dataset.still) {
      if (event.name === 'reset' || concerns(event)) compare();
      return;
    }
    if (concerns(event) && document.visibilityState === 'visible') soon(); // a hidden tab reads when it is seen again
  };
  channel.onmessage = (m) => on(m.data);
  const tell = (event) => {
    if (event.name === 'state') leads = event.state;
    on(event);
    if (shares) channel.postMessage(event);
  };

  // stream holds the stream of events until the signal. A stream that is silent for longer than its heartbeat is dead, though the browser may
  // not know it.
  const silence = 40000; // ms
  const stream = (signal) => new Promise((resolve) => {
    if (signal.aborted) { resolve(); return; }
    let source, retry, heard, last, failures = 0;
    const lost = () => {
      source.close();
      clearTimeout(retry);
      tell({ name: 'state', state: 'lost' });
      failures++;
      retry = setTimeout(async () => {
        if (await isSignedOut()) signedOut();
        else if (!signal.aborted) open();
      }, Math.min(60000, 500 * 2 ** failures) * (0.5 + Math.random() / 2));
    };
    const open = () => {
      heard = Date.now();
      source = new EventSource('/api/v1/events?after=' + (last || document.body.dataset.after)); // the page is as of then
      source.onopen = () => {
        heard = Date.now();
        failures = 0;
        tell({ name: 'state', state: 'on' });
        if (shares) channel.postMessage({ name: 'reset' }); // the others may have missed what came before
      };
      source.onerror = lost;
      source.addEventListener('alive', (e) => { heard = Date.now(); last = e.lastEventId; tell({ name: 'alive', asOf: JSON.parse(e.data).asOf }); });
      source.addEventListener('end', () => { source.close(); open(); }); // the server ends it now and then
      source.addEventListener('reset', (e) => { heard = Date.now(); last = e.lastEventId; tell({ name: 'reset' }); });
      source.addEventListener('changed', (e) => {
        heard = Date.now();
        last = e.lastEventId;
        tell({ name: 'changed', services: JSON.parse(e.data).services });
      });
    };
    const check = setInterval(() => { if (source.readyState !== EventSource.CLOSED && Date.now() - heard > silence) lost(); }, 5000);
    signal.addEventListener('abort', () => {
      leads = null;
      clearInterval(check);
      clearTimeout(retry);
      source.close();
      resolve();
    });
    open();
  });

  // Of the tabs of a browser that are seen, one holds the lock, and with it the stream for all of them: browsers allow six connections to a
  // host. A tab that is hidden for a while lets go, and while no tab is seen, the server asks nothing.
  const hiddenFor = 60000; // ms
  let place = null, hidden = 0;
  const join = () => {
    if (place) return;
    place = new AbortController();
    const { signal } = place;
    const held = shares ? navigator.locks.request('converge-board-stream', { signal }, () => stream(signal)) : stream(signal);
    held.catch(() => {}); // it has left before its turn
    channel.postMessage({ name: 'who' });
  };
  const leave = () => {
    if (place) place.abort();
    place = null;
  };
  document.addEventListener('visibilitychange', () => {
    clearTimeout(hidden);
    if (document.visibilityState === 'visible') { join(); soon(); } else { hidden = setTimeout(leave, hiddenFor); }
  });
  // The server asks the services of a page again for a while after it was read.
  setInterval(() => { if (document.visibilityState === 'visible') soon(); }, 75000);
  addEventListener('pagehide', leave);
  addEventListener('pageshow', (e) => { if (e.persisted) { join(); soon(); } }); // back from the cache of the browser
  join();

  if (location.pathname === '/logout') channel.postMessage({ name: 'leaves' });

  // Keys: "?" lists them.
  addEventListener('keydown', (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(e.target.tagName)) return;
    const links = [...document.querySelectorAll('main a')];
    const at = links.indexOf(document.activeElement);
    const keys = {
      '?': () => document.getElementById('keys').showModal(),
      '/': () => document.querySelector('main input[type=search]')?.focus(),
      w: () => { location.href = '/'; },
      s: () => { location.href = '/services'; },
      i: () => { location.href = '/installation'; },
      j: () => links[Math.min(at + 1, links.length - 1)]?.focus(),
      k: () => links[Math.max(at - 1, 0)]?.focus(),
    };
    if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
  });
  localize();
  moves(document.body);
})();
