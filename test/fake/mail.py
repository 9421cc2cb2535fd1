#!/usr/bin/python3
"""A mail server that does what addresses ask for (aiosmtpd).

    test/fake/mail.py FOLDER

Prints one line, JSON: the ports of its four doors, and the file of its authority's certificate, which
is made in FOLDER.

    plain      no TLS, no login
    open       no TLS, takes a login (which nobody should send)
    starttls   TLS when asked for, and then a login; without one, mail is taken too
    smtps      TLS from the start, login required

The login is robot / secret:word.  Then it prints a line for each message that it has taken, with
sender, recipients, login, TLS and the text's length and digest, one for each login, and one when it
hangs, holds or dies.  It ends when its input does.

What a local part asks for, of a recipient: refused (550), later (451), closing (421 and the end), hang
(no answer), hold (the message is not answered), dies (the connection ends after the message),
data-later and data-refused (451 and 554 to the message).  Of a sender: refused, later.
"""
import asyncio
import hashlib
import json
import logging
import ssl
import subprocess
import sys
import warnings

from aiosmtpd.smtp import SMTP, AuthResult

MESSAGE_MAX_BYTES = 64 * 1048576


def say(**fact):
    print(json.dumps(fact), flush=True)


async def never():
    await asyncio.Event().wait()


class Handler:
    async def handle_MAIL(self, server, session, envelope, address, options):
        local = address.split('@')[0]
        if local == 'refused':
            return '550 5.7.1 not from you'
        if local == 'later':
            return '451 4.7.1 greylisted, come back later'
        envelope.mail_from = address
        return '250 OK'

    async def handle_RCPT(self, server, session, envelope, address, options):
        local = address.split('@')[0]
        if local == 'refused':
            return '550-5.1.1 no such user\r\n550 5.1.1 look elsewhere'
        if local == 'later':
            return '451 4.2.0 mailbox busy'
        if local == 'closing':
            await server.push('421 4.3.2 going down')
            server.transport.close()
            await never()
        if local == 'hang':
            say(hangs=address)
            await never()
        envelope.rcpt_tos.append(address)
        return '250 OK'

    async def handle_DATA(self, server, session, envelope):
        locals_ = [address.split('@')[0] for address in envelope.rcpt_tos]
        if 'hold' in locals_:
            say(holds=True)
            await never()
        if 'dies' in locals_:
            say(dies=True)
            server.transport.abort()
            await never()
        if 'data-later' in locals_:
            return '451 4.3.0 try again'
        if 'data-refused' in locals_:
            return '554 5.6.0 this looks like spam'
        content = envelope.original_content
        say(**{'from': envelope.mail_from}, to=envelope.rcpt_tos, tls=session.ssl is not None,
            login=session.auth_data, length=len(content), sha256=hashlib.sha256(content).hexdigest())
        return '250 2.0.0 queued'


def authenticate(server, session, envelope, mechanism, data):
    login, password = data.login.decode(), data.password.decode()
    say(login=login, tls=session.ssl is not None)
    good = (login, password) == ('robot', 'secret:word')
    return AuthResult(success=good, handled=False, auth_data=login)


def make_certificate(folder):
    key, certificate = folder + '/key.pem', folder + '/cert.pem'
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes',
                    '-keyout', key, '-out', certificate, '-days', '2', '-subj', '/CN=localhost',
                    '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1'],
                   check=True, stderr=subprocess.DEVNULL)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context, certificate


async def main(folder):
    loop = asyncio.get_running_loop()
    context, certificate = make_certificate(folder)
    common = dict(hostname='mail.test', data_size_limit=MESSAGE_MAX_BYTES, loop=loop)
    login = dict(authenticator=authenticate)
    doors = {
        'plain': (dict(), None),
        'open': (dict(login, auth_require_tls=False), None),
        'starttls': (dict(login, tls_context=context), None),
        'smtps': (dict(login, auth_required=True, auth_require_tls=False), context),
    }
    ports = {}
    for name, (options, tls) in doors.items():
        server = await loop.create_server(lambda options=options: SMTP(Handler(), **common, **options), '127.0.0.1', 0,
                                          ssl=tls)
        ports[name] = server.sockets[0].getsockname()[1]
    say(**ports, authority=certificate)
    ended = asyncio.Event()
    loop.add_reader(sys.stdin, lambda: sys.stdin.buffer.read1(4096) or ended.set())
    await ended.wait()


if __name__ == '__main__':
    warnings.simplefilter('ignore')  # that a login without TLS is no good idea
    logging.disable()
    asyncio.run(main(sys.argv[1]))
